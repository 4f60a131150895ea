-- What an interrupted "create index concurrently" or "reindex ... concurrently" left behind. The half-built copy that a
-- reindex makes is to be dropped: its original is still there.
select c.relname, c.relname ~ '_cc(new|old)[0-9]*$'
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'relay' and not i.indisvalid
   and not exists (select from pg_stat_progress_create_index p where p.relid = i.indrelid)
