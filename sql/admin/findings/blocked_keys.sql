-- Keys that wait for an operator, by sink, with the reason of the one that waits longest.
select format('sink "%s", keys blocked until released: %s, the first since %s UTC (%s): relay keys blocked --sink %s',
              k.sink, count(*), to_char(min(k.since) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
              coalesce((array_agg(k.reason order by k.since))[1], 'no reason was given'), k.sink)
  from relay.stuck_keys k
 where k.retry_at is null
 group by k.sink
 order by k.sink
