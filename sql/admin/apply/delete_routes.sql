delete from relay.routes r
 using unnest(%(kind)s::text[], %(sink)s::text[], %(lo)s::smallint[]) as gone (kind, sink, lo)
 where r.kind = gone.kind and r.sink = gone.sink and r.lo = gone.lo
