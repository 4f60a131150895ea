-- What keeps the schema working when something changes around it: a publication is made, data is restored without its
-- triggers.

-- A claim is one row a batch, so a key costs it nothing; and heartbeats go on whatever is published.
drop index relay.claims_by_token;
alter table relay.claims add constraint claims_by_token primary key (token);

-- From PostgreSQL 18 on a published table must not have a generated column in its key: a trigger writes it instead.
alter table relay.stuck_keys alter column key_digest drop expression;
create function relay.digest_key() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  new.key_digest := sha256(replace(new.key, E'\\', E'\\\\')::bytea);
  return new;
end
$$;
revoke execute on function relay.digest_key() from public;
create trigger digest before insert or update of key on relay.stuck_keys
  for each row execute function relay.digest_key();

-- Without an identity PostgreSQL refuses updates and deletes of a published table that has no key, and of one with a key
-- where the publication has a row filter. "Full" makes it take them; but at wal_level = logical it writes the whole old
-- row to WAL with each of them, so a table has it only while a publication needs it.
create function relay.publications()
returns table (publication text, published oid, is_filtered boolean, columns smallint[])
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('server_version_num')::integer < 150000 then
    return query
      select p.pubname::text, c.oid, false, null::smallint[]
        from pg_publication p
        join pg_class c on c.relnamespace = 'relay'::regnamespace and c.relkind = 'r'
       where (p.pubupdate or p.pubdelete)
         and (p.puballtables
              or exists (select from pg_publication_rel t where t.prpubid = p.oid and t.prrelid = c.oid));
  else
    return query
      select p.pubname::text, c.oid, t.prqual is not null, t.prattrs::smallint[]
        from pg_publication p
        join pg_class c on c.relnamespace = 'relay'::regnamespace and c.relkind = 'r'
        left join pg_publication_rel t on t.prpubid = p.oid and t.prrelid = c.oid
       where (p.pubupdate or p.pubdelete)
         and (p.puballtables or t.oid is not null
              or exists (select from pg_publication_namespace n
                          where n.pnpubid = p.oid and n.pnnspid = c.relnamespace));
  end if;
end
$$;
comment on function relay.publications is
  'Tables of the schema whose updates or deletes are published; with their row filter and columns, from PostgreSQL 15 on.';
revoke execute on function relay.publications() from public;

create view relay.identities as
  select c.relname::text as name,
         c.relreplident = 'f' as is_full,
         coalesce(published.needs_full, false) and c.relreplident <> 'i' as needs_full,
         published.by as published_by,
         published.refused_by
    from pg_catalog.pg_class c
    left join pg_catalog.pg_index key on key.indrelid = c.oid and key.indisprimary
   cross join lateral (
         select pg_catalog.string_agg(p.publication, ', ' order by p.publication) as by,
                pg_catalog.bool_or(key.indexrelid is null or p.is_filtered) as needs_full,
                -- No identity helps where the columns of the table, or of its key, are not all published.
                pg_catalog.string_agg(p.publication, ', ' order by p.publication) filter (
                  where p.columns is not null
                    and not coalesce(not p.is_filtered
                                     and key.indkey::pg_catalog.int2[] operator(pg_catalog.<@) p.columns, false)) as refused_by
           from relay.publications() p
          where p.published = c.oid) published
   where c.relnamespace = 'relay'::pg_catalog.regnamespace and c.relkind = 'r';
comment on view relay.identities is 'Which tables of the schema are published, and what identity their rows have.';
comment on column relay.identities.name is 'Table.';
comment on column relay.identities.is_full is 'True: every update and delete writes the whole old row to WAL.';
comment on column relay.identities.needs_full is 'True: without that PostgreSQL would refuse updates and deletes.';
comment on column relay.identities.published_by is 'Publications that pass on its updates or deletes; null = none.';
comment on column relay.identities.refused_by is
  'Publications whose list of columns makes PostgreSQL refuse updates and deletes; null = none.';

-- Who waits for the lock of a table makes its writers wait. So one tries at a time, of all relays, for a fifth of a
-- second, and whoever does not get it holds off all of them for two seconds.
create function relay.set_identities(back boolean default false) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms'
as $$
declare
  v_table record;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('relay.set_identities', 1)) then
    return null;
  end if;
  select * into v_table from relay.identities i
   where i.needs_full and not i.is_full or back and i.is_full and not i.needs_full
   order by i.name limit 1;
  if not found then
    return null;
  end if;
  begin
    execute format('alter table relay.%I replica identity %s', v_table.name,
                   case when v_table.needs_full then 'full' else 'default' end);
    return true;
  exception
    when lock_not_available then
      perform pg_sleep(2);
      return false;
  end;
end
$$;
comment on function relay.set_identities is
  'Give one table the identity that its publications need; back: also take it where none needs it. True: ask again for '
  'the next; false: it is locked; null: nothing to do, or somebody else is at it.';
revoke execute on function relay.set_identities(boolean) from public;

alter table relay.outbox replica identity default;
do $$
begin
  while relay.set_identities() loop
  end loop;
end
$$;

-- Routes can be there and not compiled: restored or replicated without their triggers. So what relay.route() was compiled
-- from is noted beside it.
create function relay.routes_digest() returns text
language sql stable set search_path = pg_catalog, pg_temp
return md5(concat_ws(
  ';', (select p.prosrc from pg_proc p where p.oid = 'relay.route()'::regprocedure),
  (select string_agg(concat_ws(',', r.kind, r.sink, r.lo, r.hi), ';' order by r.kind collate "C", r.sink collate "C", r.lo)
     from relay.routes r),
  (select string_agg(concat_ws(',', s.name, s.shards, s.strict), ';' order by s.name collate "C") from relay.sinks s)));
comment on function relay.routes_digest is 'Of relay.route(), and of what it is compiled from.';

create view relay.restored as
  select coalesce(pg_catalog.obj_description('relay.route()'::regprocedure, 'pg_proc'), '')
           <> 'Compiled from relay.routes and relay.sinks: ' || relay.routes_digest() as is_uncompiled,
         coalesce(pg_catalog.pg_sequence_last_value('relay.outbox_id_seq'), 0)
           < greatest((select max(d.id) from relay.dead d),
                      (select max(last.id)
                         from (select s.name, s.shards from relay.sinks s union all select 'unrouted', 0) s
                        cross join lateral generate_series(0, greatest(s.shards - 1, 0)) slice (shard)
                        cross join lateral (
                              select o.id from relay.outbox o
                               where o.sink = s.name and o.shard = slice.shard and o.run_at is null
                               order by o.id desc limit 1) last)) as is_behind;
comment on view relay.restored is 'What data leaves undone that came without its triggers, or without its sequence.';
comment on column relay.restored.is_uncompiled is 'True: relay.route() is not what routes and sinks say.';
comment on column relay.restored.is_behind is 'True: new messages would get ids below those of live or dead ones.';

create or replace function relay.on_routes_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform relay.compile_routes();
  execute format('comment on function relay.route() is %L', 'Compiled from relay.routes and relay.sinks: '
                                                            || relay.routes_digest());
  return null;
end
$$;
revoke execute on function relay.routes_digest(), relay.on_routes_changed() from public;
update relay.routes set kind = kind where false;

-- A sequence is not replicated, and a restored one may be older than the rows: new messages would come before old ones.
create function relay.advance_ids() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_highest bigint;
begin
  -- Nobody may draw an id between the look and the step.
  lock table relay.outbox in share row exclusive mode;
  select max(ids.id) into v_highest
    from (select id from relay.outbox union all select id from relay.dead) ids;
  if v_highest > coalesce(pg_sequence_last_value('relay.outbox_id_seq'), 0) then
    return setval('relay.outbox_id_seq', v_highest);
  end if;
  return null;
end
$$;
comment on function relay.advance_ids is 'Let new ids follow those in the tables; answers the highest, or null where they do.';
revoke execute on function relay.advance_ids() from public;

do $$
begin
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant select on relay.identities, relay.restored to relay_worker;
    grant execute on function relay.set_identities(boolean), relay.publications(), relay.routes_digest(),
                              relay.advance_ids() to relay_worker;
  end if;
end
$$;
