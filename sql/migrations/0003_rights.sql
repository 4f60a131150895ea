-- Nobody's code runs with another's rights, and every name in ours means PostgreSQL's own, whatever the caller's
-- search_path. Three rules, which tests/security checks for every function of the schema:
--
--   1. a function that runs as the owner of the schema takes no value of a type that a caller can define: neither as an
--      argument nor as a column of a table that it is a trigger of;
--   2. a function has a fixed search_path, or a body that was parsed when it was made ("return ..."), or, where that costs
--      too much (relay.route), says pg_catalog with every function, operator and type;
--   3. PUBLIC may call what works out a value from its arguments, and what inserts as the caller; nothing else.

-- It reads a table of somebody else's making: a cast, a domain or a default of theirs must run as whoever inserts there.
-- So an application whose table has this trigger needs the right to write messages.
alter function relay.accept_debezium() security invoker;
revoke execute on function relay.unclaim() from public;
-- Whoever draws ids can tell how many messages others write. The sinks with "strict" need it of every writer.
revoke usage on sequence relay.outbox_id_seq from public;

-- Which of the 100 buckets of a route's share a message is in. Copies of one dedupe_key meet in one sink, or none is found
-- to be a copy.
create function relay.bucket_of(key text, dedupe_key text, message_id uuid) returns bigint
language sql immutable parallel safe
return pg_catalog.abs(relay.hash_of(coalesce(key, dedupe_key), message_id) operator(pg_catalog.%) 100);
comment on function relay.bucket_of is 'Bucket of a message, 0 to 99: by its key, else its dedupe_key, else its id.';

-- What a writer may name as sink: 'a', or 'a,b' for several. (None twice: relay.route_special sees to that.)
create function relay.names_sinks(sink text) returns boolean
language sql immutable parallel safe
-- Bounds in the pattern itself would cost fifteen times as much.
return sink operator(pg_catalog.~) '^[a-z0-9_-]+(,[a-z0-9_-]+)*$'
   and (pg_catalog.length(sink) operator(pg_catalog.<=) 63
        or pg_catalog.length(sink) operator(pg_catalog.<=) 1024 and sink operator(pg_catalog.!~) '[^,]{64}');
comment on function relay.names_sinks is
  'Whether these are names of sinks, of at most 63 characters, joined by commas, 1024 characters in all.';

do $$
begin
  if exists (select from pg_roles where rolname = 'relay_writer') then
    grant execute on function relay.read_properties(text) to relay_writer;
    grant usage on sequence relay.outbox_id_seq to relay_writer;
  end if;
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant usage on sequence relay.outbox_id_seq to relay_worker;
  end if;
end
$$;


-- relay.route() runs as the writer and with the writer's search_path: a SET clause would double its cost. So here every
-- function, operator and type says pg_catalog. ("like", "in" and "case x when" are operators too, and cannot say it.)
create or replace function relay.compile_routes() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $compile$
declare
  v_sinks text;
  v_shards text;
  v_strict text;
  v_bucket text;
begin
  -- Not 0, as for keys (relay.hash_of): a writer must not hold this lock by a key of a strict sink.
  -- Two at once would fail with "tuple concurrently updated". A lock on the tables would come too late: both have
  -- written by then, and would wait for each other.
  perform pg_advisory_xact_lock(hashtextextended('relay.compile_routes', 1));

  select string_agg(format($if$
    if %s then
      new.sink := coalesce(new.sink operator(pg_catalog.||) ',', '') operator(pg_catalog.||) %L;
    end if;$if$, t.condition, t.sink), '' order by t.sink)
    into v_sinks
    from (select r.sink,
                 string_agg(format(case when r.lo = 0 and r.hi = 100 then 'new.kind operator(pg_catalog.~~) %L'
                                        else 'new.kind operator(pg_catalog.~~) %L'
                                             ' and v_bucket operator(pg_catalog.>=) %s'
                                             ' and v_bucket operator(pg_catalog.<) %s' end,
                                   r.kind_like, r.lo, r.hi), ' or ' order by r.kind, r.lo) as condition
            from relay.routes r group by r.sink) t;
  select E'\n  v_bucket constant bigint := relay.bucket_of(new.key, new.dedupe_key, new.message_id);'
    into v_bucket
   where exists (select from relay.routes r where r.lo > 0 or r.hi < 100);
  select 'case '
         || string_agg(format('when new.sink operator(pg_catalog.=) %L'
                              ' then pg_catalog.abs((v_hash operator(pg_catalog.>>) 32) operator(pg_catalog.%%) %s)',
                              s.name, s.shards), ' ' order by s.name)
         || ' else 0 end'
    into v_shards
    from relay.sinks s where s.shards > 0;
  select format($if$
  if new.key is not null and new.due_at is null and new.sink operator(pg_catalog.=) any (array[%s]) then
    -- The id must be drawn under the lock: then ids of one key commit in their order. What comes back keeps its id.
    perform pg_catalog.pg_advisory_xact_lock(v_hash);
    new.id := pg_catalog.nextval('relay.outbox_id_seq'::pg_catalog.regclass);
  end if;$if$, string_agg(quote_literal(s.name), ', ' order by s.name))
    into v_strict
    from relay.sinks s where s.strict having count(*) > 0;

  execute format('create or replace function relay.route() returns trigger language plpgsql as %L', format($route$
declare
  v_hash constant bigint := relay.hash_of(new.key, new.message_id);%s
begin
  if new.sink is null then%s
    if new.sink is null then
      new.sink := 'unrouted';
    end if;
  elsif not relay.names_sinks(new.sink) then
    raise exception using errcode = 'check_violation', message = pg_catalog.format(
      'sink: expected the name of a sink (at most 63 of a-z, 0-9, _, -), or several with commas between them, got %%L',
      pg_catalog.left(new.sink, 100)),
      hint = 'Leave it out where the routes should decide.';
  end if;
  new.shard := %s;%s
  return new;
end
$route$, v_bucket, coalesce(v_sinks, ''), coalesce(v_shards, '0'), coalesce(v_strict, '')));
end
$compile$;
-- As any change of routes does, this compiles them.
update relay.routes set kind = kind where false;


-- At SERIALIZABLE no duplicate is looked for: a look counts as reading a whole page of the index, so transactions would
-- conflict that write different dedupe_keys. There the index alone tells: "on conflict do nothing" does nothing, a plain
-- insert fails. (What else is here: 0001_trunk.sql.)
create or replace function relay.route_special() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
as $$
declare
  v_sinks text[] := string_to_array(new.sink, ',');
  v_sink text;
  v_strict boolean;
begin
  if new.dedupe_key is not null and current_setting('transaction_isolation') <> 'serializable' then
    -- A plain insert of a duplicate does nothing, as "on conflict do nothing" would.
    v_sinks := '{}';
    foreach v_sink in array string_to_array(new.sink, ',') loop
      -- Sink by sink: of a join the planner may make a walk through the whole index.
      if not exists (select from relay.outbox o where o.sink = v_sink and o.dedupe_key = new.dedupe_key) then
        v_sinks := v_sinks || v_sink;
      end if;
    end loop;
    if v_sinks = '{}' and new.sink <> '' then
      return null;
    end if;
  end if;
  foreach v_sink in array v_sinks[2:] loop
    if cardinality(array_positions(v_sinks, v_sink)) > 1 then
      raise exception using errcode = 'check_violation',
        message = format('sink: expected each sink once, got %L', left(new.sink, 100));
    end if;
    insert into relay.outbox (sink, kind, key, payload, body, headers, message_id, run_at, max_attempts, dedupe_key,
                              created_at)
    values (v_sink, new.kind, new.key, new.payload, new.body, new.headers, new.message_id, new.run_at, new.max_attempts,
            new.dedupe_key, new.created_at)
    on conflict (sink, dedupe_key) where dedupe_key is not null do nothing;
  end loop;
  if new.sink <> v_sinks[1] then
    new.sink := v_sinks[1];
    select coalesce(abs((relay.hash_of(new.key, new.message_id) >> 32) % nullif(s.shards, 0)), 0), s.strict
      into new.shard, v_strict
      from relay.sinks s where s.name = new.sink;
    new.shard := coalesce(new.shard, 0);
    if v_strict and new.key is not null and new.due_at is null then
      perform pg_advisory_xact_lock(relay.hash_of(new.key, null));
      new.id := nextval('relay.outbox_id_seq');
    end if;
  end if;
  if new.run_at <= clock_timestamp() then
    new.run_at := null;
  elsif new.run_at < 'infinity' and exists (
          select from relay.sinks s
           where s.name = new.sink and new.run_at <= clock_timestamp() + make_interval(secs => s.hand_over)) then
    new.headers := coalesce(new.headers, '{}') || jsonb_build_object('relay.at', extract(epoch from new.run_at));
    new.run_at := null;
  end if;
  return new;
end
$$;


-- Keys of an equal hash can be made in seconds, and the key itself may be longer than an index allows: a second hash, of
-- which nobody can make an equal one, tells them apart.
alter table relay.stuck_keys
  add column key_digest bytea not null
      generated always as (pg_catalog.sha256(pg_catalog.replace(key, E'\\', E'\\\\')::pg_catalog.bytea)) stored,
  drop constraint stuck_keys_pkey,
  add primary key (sink, key_hash, key_digest);
comment on column relay.stuck_keys.key_hash is 'Hash of the key, by which its waiting messages are found.';
comment on column relay.stuck_keys.key_digest is 'Another hash of the key: it stands for it where the key is too long.';
