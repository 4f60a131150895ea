-- Messages that a relay process of this machine holds, by sink.
select sink, sum(cardinality(ids))::bigint from relay.claims where split_part(worker, ':', 2) = %(pid)s group by sink
