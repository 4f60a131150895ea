-- As read_shards.sql, and quicker, for what is usual: small messages, and none that came back under an old id. One that is
-- larger, or that claims died with, comes without its data, and where one came back nothing comes; then the other
-- statement has to read. A shard is told once, in a row before its messages. Where only a few keys are stuck, a key is
-- looked up among those few first.
select o.*
  from relay.sinks s
 cross join unnest(%(shards)s::smallint[], %(edges)s::bigint[]) as slice (shard, edge)
 cross join (select array(select k.key_hash from relay.stuck_keys k where k.sink = %(sink)s limit 17) as hashes) stuck
 cross join lateral (
       select null::tid, null::bigint, null::text, null::text, null::json, null::bytea, null::jsonb, null::uuid,
              null::integer, null::timestamptz, null::uuid[], null::integer, null::smallint, null::bigint, slice.shard,
              null::bigint, null::text
       union all
       (select r.ctid, r.id, r.kind, case when size.fits then r.key end,
               case when size.fits then r.payload end,
               case when r.body is not null and size.fits then r.body end,
               case when r.headers is not null and size.fits then r.headers end,
               r.message_id, case when r.attempts > 0 then least(r.attempts, 2147483646) + 1 end, r.created_at,
               r.prior_tokens, r.max_attempts, r.deaths, null, null,
               case when exists (select from relay.stuck_keys k where k.sink = %(sink)s) and r.key is not null
                     and (cardinality(stuck.hashes) = 17 or relay.hash_of(r.key, null) = any(stuck.hashes))
                    then (select k.upto from relay.stuck_keys k
                           where k.sink = %(sink)s and k.key_hash = relay.hash_of(r.key, null)
                             and k.key = r.key) end,
               null
          from relay.outbox r
         cross join lateral (
               select case when r.deaths >= 2 or octet_length(r.key) > %(part)s::integer then false
                           when r.body is null and r.headers is null
                           then pg_column_size(r.payload) <= %(part)s::integer and pg_column_compression(r.payload) is null
                           else coalesce(octet_length(r.body), pg_column_size(r.payload))
                                + coalesce(octet_length(r.headers::text), 0) <= %(part)s::integer
                                and pg_column_compression(r.payload) is null
                      end as fits) size
         where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null and r.id > slice.edge
         order by r.id
         limit %(each)s)) o
 where s.name = %(sink)s and s.paused_at is null and not s.resharding and slice.shard < s.shards
   and slice.shard <> all (array(select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))
   and (select not exists (select from relay.outbox r
                            where r.sink = %(sink)s and r.run_at is null and r.due_at is not null))
