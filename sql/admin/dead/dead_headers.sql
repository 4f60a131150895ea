-- The headers of a dead message, as bytes.
select convert_to(headers::text, getdatabaseencoding()) from relay.dead where id = %(id)s
