select pg_notify(%(channel)s, '')
