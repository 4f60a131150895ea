insert into relay.sinks (name, shards, max_attempts, hand_over)
select * from unnest(%(name)s::text[], %(shards)s::smallint[], %(max_attempts)s::integer[], %(hand_over)s::boolean[])
    on conflict (name) do update
   set shards = excluded.shards, max_attempts = excluded.max_attempts, hand_over = excluded.hand_over
