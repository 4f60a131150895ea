-- Through a pooler in transaction mode the backend is another one than the one that was connected to. There, nothing may
-- be set. Elsewhere a statement that this side has given up must not go on, and wait for locks, on that side.
select direct,
       case when direct and (theirs = 0 or theirs > %(timeout)s::float8)
            then set_config('statement_timeout', round(%(timeout)s::float8 * 1000)::text, false) end
  from (select pg_backend_pid() = %(pid)s as direct,
               extract(epoch from current_setting('statement_timeout')::interval)::float8 as theirs) session
