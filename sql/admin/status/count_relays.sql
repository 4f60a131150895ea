select count(*) from relay.relays where seen_at > clock_timestamp() - interval '30 seconds'
