-- Waits for every transaction that has written messages, so that what they wrote is seen and counted.
lock table relay.outbox in share mode
