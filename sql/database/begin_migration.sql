-- Of two migrations at once, one waits; nobody else waits for that lock. A lock of a table that is waited for makes every
-- statement of the application wait behind it: so shortly. The settings end with the transaction; a role may have others.
-- Whoever migrates has a search_path, where somebody may have made functions: so these say pg_catalog.
select pg_catalog.set_config('lock_timeout', '2s', true),
       pg_catalog.set_config('statement_timeout', '0', true),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true),
       pg_catalog.set_config('standard_conforming_strings', 'on', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('relay.migrations', 1)),
       pg_catalog.set_config('lock_timeout', '200ms', true)
