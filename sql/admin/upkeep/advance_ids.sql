select relay.advance_ids()
