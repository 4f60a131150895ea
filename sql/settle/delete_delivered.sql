-- A claimed row stays where it is until its claim ends, so its place is the cheapest way back to it.
delete from relay.outbox where ctid = any(%(places)s) and claim_token = %(token)s
