-- What became of messages that were requeued and have left the queue: dead again, or not sent because they had arrived.
select (select count(*) from relay.dead where id = any(%(ids)s)),
       (select count(*) from relay.arrived where id = any(%(ids)s))
