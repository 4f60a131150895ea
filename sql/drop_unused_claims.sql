delete from relay.claims where token = %(token)s and ids = '{}'
