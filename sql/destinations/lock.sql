-- A destination that took a message. What waits for it must be read by a later statement: until the row is locked, others
-- may add to it.
select failures from relay.destinations where sink = %(sink)s and destination = %(destination)s for update
