-- Of two migrations at once, one waits; nobody else waits for that lock. A lock of a table that is waited for makes every
-- statement of the application wait behind it: so shortly. The settings end with the transaction; a role may have others.
select set_config('lock_timeout', '2s', true),
       set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('standard_conforming_strings', 'on', true),
       set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_advisory_xact_lock(hashtextextended('relay.migrations', 0)),
       set_config('lock_timeout', '200ms', true)
