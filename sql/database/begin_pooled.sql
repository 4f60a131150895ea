-- First in each transaction through a pooler, where nothing can be set for a session. (Qualified, as it is what makes
-- names mean PostgreSQL's own.)
select pg_catalog.set_config('search_path', 'pg_catalog,pg_temp', true),
       pg_catalog.set_config('synchronous_commit', 'on', true),
       pg_catalog.set_config('standard_conforming_strings', 'on', true),
       pg_catalog.set_config('array_nulls', 'on', true)
