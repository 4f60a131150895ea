drop index concurrently if exists relay.{index}
