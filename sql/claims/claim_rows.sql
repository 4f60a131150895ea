-- Claim free messages of an unordered sink: lock the oldest, keep as many as fit, mark them, note the lease.
-- Cut by size before marking, but always take one. Where that one is too large, where claims died with it, or where the
-- caller asks for it, it comes alone and without its data, which is read once the claim stands: should that kill the
-- reader, the claim's death counts.
with picked as materialized (
  select array_agg(counted.ctid) as places,
         max(counted.size) filter (where counted.suspects > 0 or counted.bytes > %(bytes)s or %(apart)s) as unread
    from (select sized.ctid, sized.bytes as size,
                 row_number() over first_to_this as nth,
                 sum(sized.bytes) over first_to_this as bytes,
                 count(*) filter (where sized.suspect) over first_to_this as suspects
            from (select f.ctid, f.id,
                         case when %(apart)s
                              then coalesce(octet_length(f.body), pg_column_size(f.payload))
                                   + coalesce(pg_column_size(f.headers), 0)
                              else coalesce(octet_length(f.body),
                                            case when pg_column_compression(f.payload) is null
                                                 then pg_column_size(f.payload)
                                                 else octet_length(f.payload::text) end)
                                   + coalesce(octet_length(f.headers::text), 0) end
                         + coalesce(octet_length(f.key), 0) as bytes,
                         f.deaths >= 2 as suspect
                    from relay.outbox f
                   where f.sink = %(sink)s and f.shard = 0 and f.run_at is null
                     and f.claim_token is null and f.id > %(after)s
                     and (select s.paused_at is null and s.shards = 0 and not s.resharding
                            from relay.sinks s where s.name = %(sink)s)
                   order by f.id
                   limit %(messages)s
                     for update of f skip locked) sized
          window first_to_this as (order by sized.id rows unbounded preceding)) counted
   where counted.nth = 1 or (counted.bytes <= %(bytes)s and counted.suspects = 0)
), marked as (
  update relay.outbox o
     set claim_token = %(token)s,
         attempts = least(o.attempts, 2147483646) + 1
   where o.ctid = any((select places from picked)::tid[])
  returning o.ctid, o.id,
            case when (select unread from picked) is null then o.kind end,
            case when (select unread from picked) is null then o.key end,
            case when (select unread from picked) is null then o.payload end,
            case when (select unread from picked) is null then o.body end,
            case when (select unread from picked) is null then o.headers end,
            o.message_id, nullif(o.attempts, 1), o.created_at, o.prior_tokens, o.max_attempts, o.deaths,
            (select unread from picked), o.destination
), claim as (
  insert into relay.claims (token, sink, worker, claimed_at, locked_until, ids)
  select %(token)s, %(sink)s, %(worker)s, clock_timestamp(),
         clock_timestamp() + make_interval(secs => %(lease)s), array_agg(marked.id)
    from marked
  having count(*) > 0
  returning claimed_at
)
select marked.*, claim.claimed_at from marked cross join claim
