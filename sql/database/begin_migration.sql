-- Of two migrations at once, one waits. The settings end with the transaction: a role may have others, and a lock that
-- is waited for longer would make every statement of the application wait behind it.
select set_config('lock_timeout', '2s', true),
       set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_advisory_xact_lock(hashtextextended('relay.migrations', 0))
