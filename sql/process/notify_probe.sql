-- Asking how full the queue is also drops what everybody has read: else a queue that was full once may stay so.
select pg_notification_queue_usage(), pg_notify(%(channel)s, ''), current_setting('transaction_read_only')::boolean
