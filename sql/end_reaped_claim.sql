delete from relay.claims where token = %(token)s and sink = %(sink)s and shard is not distinct from %(shard)s
