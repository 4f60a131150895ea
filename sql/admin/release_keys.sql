-- Let keys go on now: these, or all that wait for a person. The relays' maintenance does the rest.
update relay.stuck_keys
   set retry_at = now()
 where (%(sink)s::text is null or sink = %(sink)s)
   and (%(keys)s::text[] is null and retry_at is null
        or key_hash = any(array(select relay.hash_of(k, null) from unnest(%(keys)s::text[]) k))
           and key = any(%(keys)s::text[]))
returning key
