-- Free shards with ready messages, and the first id of each; of those that are known only what came back under an old id.
-- A scan of an index takes in the rest of a page however few rows are wanted of it, so the first look is no further than
-- where the next one should be.
select found.shard, found.id
  from (select slice.nth - 1 as shard,
               least(
                 case when slice.nth - 1 <> all (%(known)s::smallint[])
                      then coalesce((select o.id from relay.outbox o
                                      where o.sink = %(sink)s and o.shard = slice.nth - 1 and o.run_at is null
                                        and o.id > slice.edge and o.id <= slice.edge + 16 * s.shards
                                      order by o.id
                                      limit 1),
                                    (select o.id from relay.outbox o
                                      where o.sink = %(sink)s and o.shard = slice.nth - 1 and o.run_at is null
                                        and o.id > slice.edge + 16 * s.shards
                                      order by o.id
                                      limit 1)) end,
                 (select o.id from relay.outbox o
                   where o.sink = %(sink)s and o.shard = slice.nth - 1 and o.run_at is null and o.due_at is not null
                     and o.id <= slice.edge
                     and (select exists (select from relay.outbox r
                                          where r.sink = %(sink)s and r.run_at is null and r.due_at is not null))
                   order by o.id
                   limit 1)) as id
          from relay.sinks s
         cross join lateral unnest(%(edges)s::bigint[]
                                    || array_fill(0::bigint, array[greatest(0, s.shards - cardinality(%(edges)s::bigint[]))]))
               with ordinality as slice (edge, nth)
         where s.name = %(sink)s and s.paused_at is null and not s.resharding and slice.nth <= s.shards
           and slice.nth - 1 <> all (array(select unnest(c.shards) from relay.claims c where c.sink = %(sink)s))
        offset 0) found
 where found.id is not null
