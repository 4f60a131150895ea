-- Transactions that are just claiming shards of a sink: they hold their locks until what they claim can be seen.
select virtualtransaction, pid
  from pg_locks
 where locktype = 'advisory' and granted and objsubid = 2
   and database = (select oid from pg_database where datname = current_database())
   and classid::bigint = hashtext('relay shard of ' || %(sink)s)::bigint & 4294967295
