select pg_relation_size(%(table)s::regclass) / current_setting('block_size')::bigint
