select relay.set_identities(back => %(back)s)
