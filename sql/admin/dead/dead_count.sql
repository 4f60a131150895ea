-- The same messages as in dead_page.
select count(*)
  from relay.dead d
 where (%(ids)s::bigint[] is null or d.id = any(%(ids)s))
   and (%(sink)s::text is null or d.sink = %(sink)s)
   and (%(kind)s::text is null
        or d.kind like replace(replace(replace(replace(replace(
                         %(kind)s, '\', '\\'), '%%', '\%%'), '_', '\_'), '*', '%%'), '?', '_'))
   and (%(error)s::text is null or strpos(d.error, %(error)s) > 0)
   and (%(since)s::timestamptz is null or d.died_at >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or d.died_at < %(until)s::timestamptz)
