-- Note a claim of locked shards, and exactly which messages it is about: these are freed should it run out.
insert into relay.claims (token, sink, shards, counts, worker, claimed_at, locked_until, ids)
values (%(token)s, %(sink)s, %(shards)s::smallint[], %(counts)s::integer[], %(worker)s, statement_timestamp(),
        statement_timestamp() + make_interval(secs => %(lease)s), %(ids)s)
