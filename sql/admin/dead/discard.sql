delete from relay.dead where id = any(%(ids)s)
