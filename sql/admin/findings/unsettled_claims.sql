-- Claims that ran out a while ago and that no relay could end; and a database in which none can be ended. (A relay that
-- still holds its claims says itself that it cannot settle them.)
select 'the database is read-only: nothing can be claimed or settled; connect to the primary, or allow writes'
 where current_setting('transaction_read_only')::boolean
union all
select format('sink "%s", claims that ran out and are not ended: %s, the first at %s UTC; see the log of a relay, or start one: '
              'relay run', c.sink, count(*), to_char(min(c.locked_until) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
  from relay.claims c
 where c.locked_until < now() - interval '30 seconds'
 group by c.sink
