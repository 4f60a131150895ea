-- The last id that was drawn, whether it is committed or not, and which server says so.
select coalesce(pg_sequence_last_value('relay.outbox_id_seq'), 0), pg_postmaster_start_time()
