-- Nothing marks these rows, so the ids that come back must be compared: a row may have been moved meanwhile. No other
-- condition: it would let the planner prefer an index, and read all of it.
delete from relay.outbox where ctid = any(%(places)s) returning id
