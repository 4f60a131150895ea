-- Claim free messages of an unordered sink: lock the oldest, keep as many as fit, mark them, note the lease.
-- Cut by size before marking, but always take one. A message that two claims died with is taken alone.
with marked as (
  update relay.outbox o
     set claim_token = %(token)s,
         attempts = least(o.attempts, 2147483646) + 1
   where o.ctid = any(array(
           select counted.ctid
             from (select locked.ctid,
                          row_number() over first_to_this as nth,
                          sum(locked.bytes) over first_to_this as bytes,
                          count(*) filter (where locked.suspect) over first_to_this as suspects
                     from (select f.ctid, f.id,
                                  coalesce(octet_length(f.body),
                                           case when pg_column_compression(f.payload) is null
                                                then pg_column_size(f.payload)
                                                else octet_length(f.payload::text) end)
                            + case when f.headers is null then 0
                                   when pg_column_compression(f.headers) is null then pg_column_size(f.headers)
                                   else octet_length(f.headers::text) end as bytes,
                                  cardinality(f.prior_tokens) >= 2 as suspect
                             from relay.outbox f
                            where f.sink = %(sink)s and f.shard = 0 and f.run_at is null
                              and f.claim_token is null and f.id > %(after)s
                              and (select s.paused_at is null and s.shards = 0 and not s.resharding
                                     from relay.sinks s where s.name = %(sink)s)
                            order by f.id
                            limit %(messages)s
                              for update of f skip locked) locked
                   window first_to_this as (order by locked.id rows unbounded preceding)) counted
            where counted.nth = 1 or (counted.bytes <= %(bytes)s and counted.suspects = 0)))
  returning o.ctid, o.id, o.kind, o.key, o.payload, o.body, o.headers, o.message_id, nullif(o.attempts, 1), o.created_at,
            o.prior_tokens, o.max_attempts, o.destination
), claim as (
  insert into relay.claims (token, sink, worker, claimed_at, locked_until, ids)
  select %(token)s, %(sink)s, %(worker)s, clock_timestamp(),
         clock_timestamp() + make_interval(secs => %(lease)s), array_agg(marked.id)
    from marked
  having count(*) > 0
  returning claimed_at
)
select marked.*, claim.claimed_at from marked cross join claim
