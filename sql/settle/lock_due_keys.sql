-- As lock_stuck_keys, for those whose time has come.
select sink, key_hash, key_digest
  from relay.stuck_keys
 where retry_at <= now() and sink <> all(array(select name from relay.sinks where resharding))
 order by retry_at
 limit %(keys)s
   for update skip locked
