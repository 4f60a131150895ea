select (select count(*) from relay.outbox where sink = %(sink)s), (select count(*) from relay.dead where sink = %(sink)s)
