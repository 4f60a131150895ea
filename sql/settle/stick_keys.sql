-- Keys of which nothing from an id on may be sent before its time. A blocked key has none: only a person lets it go on.
-- Where there is no reason, more messages were met of a key that is stuck already. Should it have been let go meanwhile,
-- it is stuck again, and due at once. A key whose first message waits for a destination goes on when that is available; it
-- is looked at once a day all the same.
insert into relay.stuck_keys as stuck (sink, key_hash, key, upto, retry_at, reason, destination)
select distinct on (key_hash, t.key)
       %(sink)s, relay.hash_of(t.key, null) as key_hash, t.key, t.first - 1,
       case when t.reason is null then now()
            when t.destination is not null then clock_timestamp() + interval '1 day'
            when not t.blocked then clock_timestamp() + make_interval(secs =>
              greatest(t.after, random() * least(%(max)s::float8,
                                                 %(base)s::float8 * power(2, greatest(least(t.attempts - 1, 60), 0)))))
       end,
       t.reason, t.destination
  from unnest(%(keys)s::text[], %(firsts)s::bigint[], %(blocked)s::boolean[], %(afters)s::float8[],
              %(attempts)s::bigint[], %(reasons)s::text[], %(destinations)s::text[])
       as t (key, first, blocked, after, attempts, reason, destination)
 order by key_hash, t.key, t.reason is null, t.first
    on conflict (sink, key_hash, key_digest) do update
   set upto = least(stuck.upto, excluded.upto),
       retry_at = case when stuck.retry_at is null then null
                       when excluded.reason is not null then excluded.retry_at
                       when excluded.upto < stuck.upto then now()
                       else stuck.retry_at end,
       destination = case when stuck.retry_at is null then null
                          when excluded.reason is not null then excluded.destination
                          when excluded.upto < stuck.upto then null
                          else stuck.destination end,
       reason = case when stuck.retry_at is null then stuck.reason else coalesce(excluded.reason, stuck.reason) end
