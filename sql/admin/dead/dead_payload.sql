-- What a dead message carries; JSON as bytes.
select convert_to(payload::text, getdatabaseencoding()), body from relay.dead where id = %(id)s
