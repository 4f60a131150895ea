-- Move messages from wrong shards to their own, in some pages of the table. Every one is in the table only once, and only
-- writers who know the new number add to it. due_at: they come to their shard under old ids.
update relay.outbox o
   set shard = coalesce(abs((relay.hash_of(o.key, o.message_id) >> 32) %% nullif(s.shards, 0)), 0),
       due_at = coalesce(o.due_at, o.created_at)
  from (select shards from relay.sinks where name = %(sink)s and resharding) s
 where o.ctid >= %(first)s::tid and o.ctid < %(past)s::tid and o.sink = %(sink)s
   and o.shard <> coalesce(abs((relay.hash_of(o.key, o.message_id) >> 32) %% nullif(s.shards, 0)), 0)
