select pg_catalog.pg_has_role(n.nspowner, 'usage') from pg_catalog.pg_namespace n where n.nspname = 'relay'
