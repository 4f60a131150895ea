select count(*) from relay.live_relays
