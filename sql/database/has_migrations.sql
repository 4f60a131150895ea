-- Read, and not to_regclass(): whoever waited for another migration would be told what it knew before the wait.
select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'relay' and c.relname = 'migrations')
