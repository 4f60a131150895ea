-- Kinds whose shares leave buckets out: what falls into these goes to "unrouted".
with gap as (
  select p.kind, b.bucket, b.bucket - row_number() over (partition by p.kind order by b.bucket) as island
    from (select distinct kind from relay.routes where lo > 0 or hi < 100) p
   cross join generate_series(0, 99) as b (bucket)
   where not exists (select from relay.routes r
                      where r.lo <= b.bucket and b.bucket < r.hi
                        and (r.kind = p.kind or p.kind like r.kind_like and position('?' in r.kind) = 0))
)
select format('routes of kind "%s" leave buckets out: %s; these messages go to no sink: add a route, then: relay apply',
              kind, string_agg(buckets, ', ' order by first))
  from (select kind, min(bucket) as first, format('[%s, %s]', min(bucket), max(bucket) + 1) as buckets
          from gap group by kind, island) gaps
 group by kind
 order by kind
