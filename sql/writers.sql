-- Transactions that may have drawn an id and have not ended: before the id comes this lock. (A prepared one counts too.)
select virtualtransaction
  from pg_locks
 where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
   and database = (select oid from pg_database where datname = current_database())
   and relation = 'relay.outbox'::regclass
