-- The last id that was drawn, whether it is committed or not.
select coalesce(pg_sequence_last_value('relay.outbox_id_seq'), 0)
