-- Keys whose first message was not delivered: nothing from it on may be sent before its time. A blocked key has none.
insert into relay.stuck_keys as stuck (sink, shard, key_hash, key, upto, retry_at, reason)
select %(sink)s, t.shard, relay.hash_of(t.key, null), t.key, t.first - 1,
       case when not t.blocked then clock_timestamp() + make_interval(secs =>
         greatest(t.after, random() * least(%(max)s::float8,
                                            %(base)s::float8 * power(2, greatest(least(t.attempts - 1, 60), 0))))) end,
       t.reason
  from unnest(%(key_shards)s::smallint[], %(keys)s::text[], %(firsts)s::bigint[], %(blocked)s::boolean[],
              %(afters)s::float8[], %(attempts)s::bigint[], %(reasons)s::text[])
       as t (shard, key, first, blocked, after, attempts, reason)
    on conflict (sink, shard, key_hash) do update
   set upto = least(stuck.upto, excluded.upto), retry_at = excluded.retry_at, reason = excluded.reason
