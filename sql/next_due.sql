select extract(epoch from min(run_at) - now())::float8 from relay.outbox where run_at is not null and run_at < 'infinity'
