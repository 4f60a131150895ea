-- Some stuck keys of an ordered sink whose first message waits for a locked destination, from a hash on.
select k.sink, k.key_hash, k.key_digest
  from relay.stuck_keys k
 where k.sink = %(sink)s and k.destination = %(destination)s and k.key_hash >= %(from)s
 order by k.key_hash
 limit %(keys)s
   for update skip locked
