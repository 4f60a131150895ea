-- Nothing marks these rows, and a row may have been moved meanwhile: what is in its place now goes only if it is one of
-- those, or where `bits` is null, because the rows are locked. As a list of ids to look up in, this would cost as much
-- as the rest of the statement; nor may it be one that the planner could use an index for.
delete from relay.outbox
 where ctid = any(%(places)s)
   and case when %(bits)s::bytea is null then true
            when id between %(lowest)s::bigint and %(highest)s::bigint
            then get_bit(%(bits)s::bytea, id - %(lowest)s::bigint) = 1
            else false end
