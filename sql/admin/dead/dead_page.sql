-- A page of dead messages, without their payloads, from an id on.
select d.id, d.sink, d.kind, d.key, d.message_id, d.attempts, d.error, d.created_at, d.died_at
  from relay.dead d
 where d.id > %(after)s
   and (%(ids)s::bigint[] is null or d.id = any(%(ids)s))
   and (%(sink)s::text is null or d.sink = %(sink)s)
   and (%(kind)s::text is null
        or d.kind like replace(replace(replace(replace(replace(
                         %(kind)s, '\', '\\'), '%%', '\%%'), '_', '\_'), '*', '%%'), '?', '_'))
   and (%(error)s::text is null or strpos(d.error, %(error)s) > 0)
   and (%(since)s::timestamptz is null or d.died_at >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or d.died_at < %(until)s::timestamptz)
 order by d.id
 limit %(messages)s
