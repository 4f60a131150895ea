-- Through a pooler in transaction mode the backend is another one than the one that was connected to.
select pg_catalog.pg_backend_pid()
