-- What waits for each sink, known or only named by messages. Claimed messages are among the ready ones. The age is
-- that of the first 1000 messages in line (of each shard its part), as all of them may be millions. It begins with the
-- insert; where the server keeps the time of commits (track_commit_timestamp), when others could first see the message.
with ready as (
  select sink, count(*) as messages from relay.outbox where run_at is null group by sink
), scheduled as (
  select sink, count(*) as messages, sum(later) as later, sum(retrying) as retrying, sum(held) as held, sum(keys) as keys
    from (select sink, (last_error is null)::int as later, (last_error is not null)::int as retrying, 0 as held, 0 as keys
            from relay.outbox where run_at < 'infinity'
          union all
          select sink, 0, 0, (destination is not null)::int, (destination is null)::int
            from relay.outbox where run_at = 'infinity') later
   group by sink
), claimed as (
  select sink, sum(cardinality(ids)) as messages from relay.claims group by sink
), dead as (
  select sink, count(*) as messages from relay.dead group by sink
), names as (
  select name, shards, case when resharding then 'its messages are being moved: relay reshard' else paused_reason end
           as paused_reason, true as known
    from relay.sinks
  union all
  -- Writers may name any sink: what is shown has an end.
 (select sink, 0, null, false
    from (select sink from ready union select sink from scheduled union select sink from dead) named
   where not exists (select from relay.sinks s where s.name = named.sink)
   order by sink
   limit 100)
)
select names.name,
       greatest(coalesce(ready.messages, 0) - coalesce(claimed.messages, 0), 0)::bigint,
       coalesce(scheduled.messages, 0),
       coalesce(claimed.messages, 0)::bigint,
       coalesce(dead.messages, 0),
       (select extract(epoch from clock_timestamp() - min(first.due_at))::float8
          from generate_series(0, greatest(names.shards - 1, 0)) as slice (shard)
         cross join lateral (
               select greatest(coalesce(o.due_at, o.created_at),
                               case when current_setting('track_commit_timestamp')::boolean
                                    then pg_xact_commit_timestamp(o.xmin) end) as due_at
                 from relay.outbox o
                where o.sink = names.name and o.shard = slice.shard and o.run_at is null and o.claim_token is null
                  and o.id not in (select unnest(c.ids) from relay.claims c)
                order by o.id
                limit 1000 / greatest(names.shards, 1) + 1) first),
       names.paused_reason,
       (select min(r.circuits ->> names.name) from relay.live_relays r),
       names.known,
       exists (select from relay.live_relays r
                where r.sinks is null or r.sinks -> names.name -> 'waits' = 'null'),
       coalesce(scheduled.later, 0)::bigint, coalesce(scheduled.retrying, 0)::bigint, coalesce(scheduled.held, 0)::bigint,
       coalesce(scheduled.keys, 0)::bigint,
       (select extract(epoch from clock_timestamp() - s.paused_at)::float8 from relay.sinks s where s.name = names.name)
  from names
  left join ready on ready.sink = names.name
  left join scheduled on scheduled.sink = names.name
  left join claimed on claimed.sink = names.name
  left join dead on dead.sink = names.name
 order by names.name
