-- Messages written and gone since the statistics were reset, and a clock to tell the rates by.
select pg_stat_get_tuples_inserted('relay.outbox'::regclass), pg_stat_get_tuples_deleted('relay.outbox'::regclass),
       extract(epoch from clock_timestamp())::float8
