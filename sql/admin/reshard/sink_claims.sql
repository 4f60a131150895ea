select count(*), extract(epoch from max(locked_until) - clock_timestamp())::float8 from relay.claims where sink = %(sink)s
