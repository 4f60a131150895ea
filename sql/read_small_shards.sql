-- As read_shards.sql, and quicker, for shards of small messages: nothing is summed up, as each may have its equal part of
-- the bytes. One that is larger comes without its data; then the other statement has to read.
select o.place, o.id, o.kind, o.key,
       case when o.fits then o.payload end, case when o.fits then o.body end, case when o.fits then o.headers end,
       o.message_id, least(o.attempts, 2147483646) + 1, o.created_at, o.prior_tokens, o.max_attempts, o.shard,
       case when o.key is not null and exists (select from relay.stuck_keys k where k.sink = %(sink)s)
            then (select k.upto from relay.stuck_keys k
                   where k.sink = %(sink)s and k.key_hash = relay.hash_of(o.key, null)) end
  from relay.sinks s
 cross join unnest(%(shards)s::smallint[], %(edges)s::bigint[]) as slice (shard, edge)
 cross join lateral (
       (select r.ctid as place, r.id, r.shard, r.kind, r.key, r.payload, r.body, r.headers, r.message_id, r.attempts,
               r.created_at, r.prior_tokens, r.max_attempts,
               pg_column_compression(r.payload) is null and pg_column_compression(r.headers) is null
               and coalesce(octet_length(r.body), pg_column_size(r.payload)) + coalesce(pg_column_size(r.headers), 0)
                   <= %(bytes)s::bigint / %(messages)s::bigint as fits
          from relay.outbox r
         where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null and r.id > slice.edge
         order by r.id
         limit %(each)s)
       union all
       (select r.ctid as place, r.id, r.shard, r.kind, r.key, r.payload, r.body, r.headers, r.message_id, r.attempts,
               r.created_at, r.prior_tokens, r.max_attempts,
               pg_column_compression(r.payload) is null and pg_column_compression(r.headers) is null
               and coalesce(octet_length(r.body), pg_column_size(r.payload)) + coalesce(pg_column_size(r.headers), 0)
                   <= %(bytes)s::bigint / %(messages)s::bigint as fits
          from relay.outbox r
         where r.sink = %(sink)s and r.shard = slice.shard and r.run_at is null and r.due_at is not null
           and r.id <= slice.edge
         order by r.id
         limit %(each)s)
       order by id
       limit %(each)s) o
 where s.name = %(sink)s and s.paused_at is null and not s.resharding and slice.shard < s.shards
   and slice.shard <> all (array(select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))
 limit %(messages)s
