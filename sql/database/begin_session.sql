-- A statement that this side has given up must not go on, and wait for locks, on that side; nor may a transaction keep its
-- locks when this side is gone and nobody can say so.
select case when statement = 0 or statement > %(timeout)s::float8
            then set_config('statement_timeout', round(%(timeout)s::float8 * 1000)::text, false) end,
       case when idle = 0 or idle > %(timeout)s::float8
            then set_config('idle_in_transaction_session_timeout', round(%(timeout)s::float8 * 1000)::text, false) end
  from (select extract(epoch from current_setting('statement_timeout')::interval)::float8 as statement,
               extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval)::float8 as idle) session
