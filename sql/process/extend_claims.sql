-- Heartbeat: whatever does not come back is lost. What is locked is about to be settled or reaped: it comes back too, but
-- unrenewed, for the others must not wait for it.
with renewed as (
  update relay.claims
     set locked_until = statement_timestamp() + make_interval(secs => %(lease)s)
   where ctid = any(array(select ctid from relay.claims where token = any(%(tokens)s) for update skip locked))
  returning token
)
select c.token, exists (select from renewed r where r.token = c.token)
  from relay.claims c
 where c.token = any(%(tokens)s)
