-- As reshard_messages, for dead ones.
update relay.dead d
   set shard = coalesce(abs((relay.hash_of(d.key, d.message_id) >> 32) %% nullif(s.shards, 0)), 0)
  from (select shards from relay.sinks where name = %(sink)s and resharding) s
 where d.ctid >= %(first)s::tid and d.ctid < %(past)s::tid and d.sink = %(sink)s
   and d.shard <> coalesce(abs((relay.hash_of(d.key, d.message_id) >> 32) %% nullif(s.shards, 0)), 0)
