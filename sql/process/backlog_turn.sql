-- Whether it is this relay that counts for all, the one that runs for longest; and how many relays serve each sink.
select %(worker)s = (select r.worker from relay.live_relays r order by r.started_at, r.worker limit 1),
       (select jsonb_object_agg(s.sink, s.relays)
          from (select v.sink, count(*) as relays from relay.serving v where v.waits is null group by v.sink) s)::text
