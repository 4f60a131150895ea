-- Whether a transaction was committed; no row where this server does not know it.
select coalesce(pg_xact_status(%(transaction)s::xid8) = 'committed', false)
 where %(transaction)s::xid8 < pg_snapshot_xmax(pg_current_snapshot())
