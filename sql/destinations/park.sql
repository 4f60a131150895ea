-- Messages of an unavailable destination leave the ready index until a probe succeeded. The attempt does not count.
-- (places, uncounted: as in settle_retry.sql.)
update relay.outbox
   set claim_token = null,
       attempts = greatest(attempts - 1 + %(uncounted)s, 0),
       run_at = 'infinity',
       destination = %(destination)s,
       last_error = %(reason)s
 where ctid = any(%(places)s)
