-- Reading goes on, and so does writing messages, but while this waits for a lock that writers have.
select set_config('lock_timeout', '200ms', true)
