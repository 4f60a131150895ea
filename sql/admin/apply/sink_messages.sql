-- Live and dead messages of a sink. Two counts of the live, as each has its index.
select (select count(*) from relay.outbox where sink = %(sink)s and run_at is null)
         + (select count(*) from relay.outbox where sink = %(sink)s and run_at is not null),
       (select count(*) from relay.dead where sink = %(sink)s)
