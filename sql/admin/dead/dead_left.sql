-- Which of these messages are still live. What was requeued has due_at from then on, so each is in one of three indexes
-- that hold little beside it: of what came back, of what has a time, of what waits for an earlier one.
select o.id
  from relay.outbox o
 where o.sink = any(%(sinks)s) and o.run_at is null and o.due_at is not null and o.id = any(%(ids)s)
union all
select o.id
  from relay.outbox o
 where o.run_at < 'infinity' and o.id = any(%(ids)s)
union all
select o.id
  from relay.outbox o
 where o.sink = any(%(sinks)s) and o.run_at = 'infinity' and o.id = any(%(ids)s)
