insert into relay.sinks (name, shards, max_attempts, hand_over, strict)
select * from unnest(%(name)s::text[], %(shards)s::smallint[], %(max_attempts)s::integer[], %(hand_over)s::integer[],
                     %(strict)s::boolean[])
    on conflict (name) do update
   set shards = excluded.shards, max_attempts = excluded.max_attempts, hand_over = excluded.hand_over,
       strict = excluded.strict
