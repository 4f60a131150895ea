-- Transactions that have begun to write to these tables, or to lock rows of them, and have not ended: the lock comes
-- before anything else, and is given up after everything. (A prepared transaction has no process.)
select virtualtransaction, pid
  from pg_locks
 where locktype = 'relation' and mode in ('RowExclusiveLock', 'RowShareLock') and granted
   and database = (select oid from pg_database where datname = current_database())
   and relation = any(%(tables)s::text[]::regclass[]::oid[])
