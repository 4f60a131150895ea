delete from relay.claims where token = %(token)s and shard <> all(%(used)s::smallint[])
