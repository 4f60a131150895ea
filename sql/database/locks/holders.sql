-- Who holds what a migration needs: its lock, or any table of the schema.
select l.pid, coalesce(nullif(a.application_name, ''), a.backend_type), coalesce(a.state, 'hidden')
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
 where l.granted and l.pid <> pg_backend_pid()
   and l.database = (select oid from pg_database where datname = current_database())
   and (l.relation in (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
                        where n.nspname = 'relay')
        or l.locktype = 'advisory' and l.objsubid = 1
           and l.classid::bigint << 32 | l.objid::bigint = hashtextextended('relay.migrations', 1))
 group by 1, 2, 3
 order by 1
