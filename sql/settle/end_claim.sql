-- First of every settle: no row means that somebody else owns these messages, and nothing may be written. The transaction
-- is told, so that it can be asked later whether it was committed, should nobody hear of that.
delete from relay.claims where token = %(token)s returning pg_current_xact_id()::text
