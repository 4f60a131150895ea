-- What statements rely on, whatever the role or the database prefers: names mean PostgreSQL's own, as in a schema of the
-- role's path somebody may have made an operator that fits better; a claim survives a crash of the server, or nobody would
-- remember whom to ask whether its messages arrived; text is read as it was meant. Once a session, and through a pooler in
-- transaction mode, where nothing can be set for a session, once a transaction.
select pg_catalog.set_config('search_path', 'pg_catalog,pg_temp', %(local)s),
       pg_catalog.set_config('synchronous_commit', 'on', %(local)s),
       pg_catalog.set_config('standard_conforming_strings', 'on', %(local)s),
       pg_catalog.set_config('array_nulls', 'on', %(local)s)
