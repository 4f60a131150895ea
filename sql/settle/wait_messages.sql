-- Messages that wait for an earlier one of their key, and that one itself, leave the ready index.
update relay.outbox
   set run_at = 'infinity',
       destination = null,
       attempts = least(attempts, 2147483646) + (%(counts)s::integer[])[array_position(%(ids)s::bigint[], id)],
       prior_tokens = relay.add_token(prior_tokens, (%(kept)s::uuid[])[array_position(%(ids)s::bigint[], id)]),
       past_errors = relay.remember(past_errors, last_error,
                                    coalesce((%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)], last_error),
                                    attempts),
       last_error = coalesce((%(reasons)s::text[])[array_position(%(ids)s::bigint[], id)], last_error)
 where ctid = any(array(
         select found.place
           from unnest(%(shards)s::smallint[], %(ids)s::bigint[]) as wanted (shard, id)
          cross join lateral (
                select o.ctid as place
                  from relay.outbox o
                 where o.sink = %(sink)s and o.shard = wanted.shard and o.run_at is null and o.id = wanted.id
                 limit 1) found))
