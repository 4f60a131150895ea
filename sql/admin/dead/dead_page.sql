-- A page of dead messages, without their payloads, from an id on. What a writer supplied comes as bytes: in some databases
-- they are no text that could be sent as such.
select d.id, d.sink, convert_to(d.kind, getdatabaseencoding()), convert_to(d.key, getdatabaseencoding()), d.message_id,
       d.attempts, d.error, d.created_at, d.died_at
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
