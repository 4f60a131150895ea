-- Delete dead messages. Of those that block a key: which keys still wait for a person.
with gone as (
  delete from relay.dead where id = any(%(ids)s) returning id, sink, key
)
select (select array_agg(id order by id) from gone), blocked.sink, convert_to(blocked.key, getdatabaseencoding())
  from (select) nothing
  left join (select distinct k.sink, k.key
               from relay.stuck_keys k
               join gone on gone.sink = k.sink and gone.key = k.key and gone.id > k.upto
              where k.retry_at is null) blocked on true
 order by blocked.sink, blocked.key
