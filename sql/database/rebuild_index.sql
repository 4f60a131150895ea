reindex index concurrently relay.{index}
