-- What data leaves undone that came without its triggers, or without its sequence.
select 'routes are in the database, but not compiled, so messages go elsewhere: relay apply'
  from relay.restored r where r.is_uncompiled
 union all
select 'new messages would get ids below those of waiting ones: relay apply'
  from relay.restored r where r.is_behind
