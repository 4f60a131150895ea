insert into relay.routes (kind, sink, lo, hi, shadow)
select * from unnest(%(kind)s::text[], %(sink)s::text[], %(lo)s::smallint[], %(hi)s::smallint[], %(shadow)s::boolean[])
    on conflict (kind, sink, lo) do update set hi = excluded.hi, shadow = excluded.shadow
