-- What a claimed shard's claim is about: exactly these messages are freed should it run out.
update relay.claims
   set ids = (%(lists)s::text[])[array_position(%(used)s::smallint[], shard)]::bigint[]
 where token = %(token)s and shard = any(%(used)s)
