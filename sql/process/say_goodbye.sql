delete from relay.relays where worker = %(worker)s or seen_at < clock_timestamp() - interval '5 minutes'
