select ids from relay.claims where token = %(token)s for update
