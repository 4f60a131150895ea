-- First of every settle: no row means that somebody else owns these messages, and nothing may be written.
delete from relay.claims where token = %(token)s
