-- Reading goes on, and so does writing messages.
select set_config('lock_timeout', '2s', true)
