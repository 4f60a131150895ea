-- For each shard, from its edge on: the id before its first ready message, and no higher than `highest`.
select least((select o.id - 1
                from relay.outbox o
               where o.sink = %(sink)s and o.shard = slice.nth - 1 and o.run_at is null and o.id > slice.edge
               order by o.id
               limit 1),
             %(highest)s)
  from unnest(%(edges)s::bigint[]) with ordinality as slice (edge, nth)
 order by slice.nth
