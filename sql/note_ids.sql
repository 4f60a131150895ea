-- What a claim of shards is about: exactly these messages are freed should it run out. Other shards are given back.
update relay.claims
   set shards = %(shards)s::smallint[], counts = %(counts)s::integer[], ids = %(ids)s::text::bigint[]
 where token = %(token)s
