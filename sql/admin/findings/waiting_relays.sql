-- Relays that do not serve one of their sinks, which another relay does serve.
select format('sink "%s": relay %s does not serve it: %s', v.sink, v.worker, v.waits)
  from relay.serving v
 where v.waits is not null
   and exists (select from relay.serving o where o.sink = v.sink and o.waits is null)
 order by v.sink, v.worker
