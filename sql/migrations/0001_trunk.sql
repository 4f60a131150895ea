-- The whole life of a message:
--
--   INSERT ──route──▶ ready ──claim──▶ claimed ──settle──▶ gone (delivered)
--                       ▲                 │ ├────────────▶ scheduled (retry: run_at is set)
--     scheduled ──promote┘                │ └────────────▶ relay.dead
--     claimed, relay died ──reap──────────┘
--
-- relay.outbox holds live messages and nothing else. There is no status column, because an indexed status
-- makes every claim rewrite the indexes; what a message is follows from two columns:
--
--   ready      run_at is null and claim_token is null
--   claimed    claim_token is not null (and a row in relay.claims says until when)
--   scheduled  run_at is not null: not before then
--   waiting    run_at is infinity: an earlier message of its key is not delivered yet (relay.stuck_keys)
--
-- Messages of an ordered sink are claimed by the shard and not marked: they are ready until they are gone. Whatever
-- becomes ready under an old id (promoted, let go, requeued, routed anew) has due_at, and an index of its own: readers
-- of a shard start where nothing else can appear any more.

-- A role that may not create schemas can be given one.
do $$
begin
  if to_regnamespace('relay') is null then
    create schema relay;
  end if;
end
$$;
comment on schema relay is 'Outbox relay: messages on their way to a broker.';

create table relay.migrations (
  version     integer primary key,
  name        text not null,
  applied_at  timestamptz not null default clock_timestamp()
);
comment on table relay.migrations is 'Which numbered schema files were applied, and when.';
comment on column relay.migrations.version is 'Number of the file.';
comment on column relay.migrations.name is 'Name of the file without number and ending.';
comment on column relay.migrations.applied_at is 'When it was applied.';


create table relay.sinks (
  name           text primary key check (name ~ '^[a-z0-9_-]{1,63}$'),
  shards         smallint not null default 0 check (shards between 0 and 1024),
  max_attempts   integer not null default 20 check (max_attempts > 0),
  hand_over      integer check (hand_over > 0),
  strict         boolean not null default false,
  resharding     boolean not null default false,
  paused_at      timestamptz,
  paused_reason  text,
  check ((paused_at is null) = (paused_reason is null))
);
comment on table relay.sinks is 'Destinations, written by "relay apply" from the configuration file.';
comment on column relay.sinks.name is 'Name in the configuration file.';
comment on column relay.sinks.shards is 'Slices of its keys; 0 = unordered, every message is in shard 0.';
comment on column relay.sinks.max_attempts is 'Attempts of a message that names none itself.';
comment on column relay.sinks.hand_over is
  'So many seconds before its time the broker may have a scheduled message, with its time; null = the relay waits.';
comment on column relay.sinks.strict is 'True: transactions that write one key wait for each other, so that ids commit in order.';
comment on column relay.sinks.resharding is 'True: "relay reshard" is moving its messages, and nothing of it is claimed.';
comment on column relay.sinks.paused_at is 'Since when nothing is claimed for it; null = it runs.';
comment on column relay.sinks.paused_reason is 'Why, in the words of whoever paused it.';

create table relay.routes (
  kind       text not null check (kind <> ''),
  sink       text not null references relay.sinks (name),
  lo         smallint not null default 0,
  hi         smallint not null default 100,
  shadow     boolean not null default false,
  kind_like  text not null generated always as (
    replace(replace(replace(replace(replace(kind, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), '?', '_')
  ) stored,
  primary key (kind, sink, lo),
  check (0 <= lo and lo < hi and hi <= 100)
);
comment on table relay.routes is 'Which kinds go to which sinks. Every matching route applies.';
comment on column relay.routes.kind is 'Pattern: * stands for any run of characters, ? for one.';
comment on column relay.routes.sink is 'Where matching messages go.';
comment on column relay.routes.lo is 'First of the 100 buckets that this route takes.';
comment on column relay.routes.hi is 'One past its last bucket.';
comment on column relay.routes.shadow is 'True: its copies are sent for comparison only.';
comment on column relay.routes.kind_like is 'The pattern in the words of LIKE.';


-- Which bucket and which shard a message falls into follows from this.
create function relay.hash_of(key text, message_id uuid) returns bigint
language sql immutable parallel safe
-- The hashes of hash partitioning: PostgreSQL cannot change them without breaking pg_upgrade.
return case when key is null then uuid_hash_extended(message_id, 0) else hashtextextended(key collate "C", 0) end;


-- fillfactor leaves room for the new version of a claimed row on the same page: together with "no index on what
-- a claim changes" that makes claiming a heap-only update. vacuum_truncate is off because shrinking the file needs
-- an exclusive lock, and a queue grows back at once.
create table relay.outbox (
  id            bigint generated always as identity,
  sink          text not null,
  shard         smallint not null,
  kind          text not null check (char_length(kind) between 1 and 255),
  key           text,
  payload       json,
  body          bytea,
  headers       jsonb check (jsonb_typeof(headers) = 'object'),
  message_id    uuid not null default gen_random_uuid(),
  run_at        timestamptz,
  due_at        timestamptz,
  attempts      integer not null default 0,
  max_attempts  integer check (max_attempts > 0),
  dedupe_key    text check (octet_length(dedupe_key) <= 1024),
  claim_token   uuid,
  prior_tokens  uuid[],
  last_error    text,
  past_errors   text[],
  created_at    timestamptz not null default clock_timestamp(),
  constraint payload_or_body check ((payload is null) <> (body is null))
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_analyze_scale_factor = 0.1,
  autovacuum_vacuum_cost_delay = 0,
  vacuum_truncate = off
);
-- No primary key: claiming must have exactly one index to choose, whatever the statistics say. Where a publication
-- covers all tables, updates and deletes need an identity all the same; "full" costs nothing below wal_level logical.
alter table relay.outbox replica identity full;

create index outbox_ready on relay.outbox (sink, shard, id) where run_at is null;
create index outbox_scheduled on relay.outbox (run_at) where run_at < 'infinity';
create index outbox_returned on relay.outbox (sink, shard, id) where run_at is null and due_at is not null;
create index outbox_waiting on relay.outbox (sink, relay.hash_of(key, null), id) where run_at = 'infinity';
create unique index outbox_dedupe on relay.outbox (sink, dedupe_key) where dedupe_key is not null;

comment on table relay.outbox is 'Live messages, one row a message and sink. Delivered rows leave at once.';
comment on column relay.outbox.id is 'Order of insertion. Ids may commit out of order.';
comment on column relay.outbox.sink is 'Where it goes. Left out, the routes decide; "unrouted" = none matched.';
comment on column relay.outbox.shard is 'Slice of the sink''s keys; 0 for unordered sinks. Set by the trigger.';
comment on column relay.outbox.kind is 'What it is: order.created, SendReceipt.';
comment on column relay.outbox.key is 'Ordering key; null = no order.';
comment on column relay.outbox.payload is 'JSON text; reaches the broker byte for byte.';
comment on column relay.outbox.body is 'Anything that is not JSON, instead of a payload.';
comment on column relay.outbox.headers is 'JSON object of further facts for the consumer.';
comment on column relay.outbox.message_id is 'Idempotency key: the same on every copy that is ever sent.';
comment on column relay.outbox.run_at is 'Not before this time; null = as soon as possible.';
comment on column relay.outbox.due_at is 'When a message that came back became due; null = when it was created.';
comment on column relay.outbox.attempts is 'How often it was claimed, outages not counted.';
comment on column relay.outbox.max_attempts is 'Dead after so many; null = as its sink says.';
comment on column relay.outbox.dedupe_key is 'At most one live message a sink has it.';
comment on column relay.outbox.claim_token is 'Token of the claim that holds it (relay.claims); null = free.';
comment on column relay.outbox.prior_tokens is 'Claims that ended without anybody learning their outcome.';
comment on column relay.outbox.last_error is 'What the sink said the last time.';
comment on column relay.outbox.past_errors is 'Why it was dead before it was requeued, oldest first.';
comment on column relay.outbox.created_at is 'When it was written.';


create table relay.claims (
  token         uuid not null,
  sink          text not null,
  shards        smallint[],
  counts        integer[],
  worker        text not null,
  claimed_at    timestamptz not null,
  locked_until  timestamptz not null,
  ids           bigint[] not null,
  check ((shards is null) = (counts is null) and cardinality(shards) = cardinality(counts))
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0,
  vacuum_truncate = off
);
-- Compressing the ids of a large batch costs the server as much as a tenth of the whole claim.
alter table relay.claims alter column ids set storage external;
create index claims_by_token on relay.claims (token);
create index claims_by_sink on relay.claims (sink);
comment on table relay.claims is 'Leases: one row a batch, so that a heartbeat is one small update.';
comment on column relay.claims.token is 'Fresh for every claim. Whoever cannot show it may write nothing.';
comment on column relay.claims.sink is 'Sink of the messages.';
comment on column relay.claims.shards is 'Shards that are claimed as a whole; null = single rows. No two claims of a sink have the same one.';
comment on column relay.claims.counts is 'How many of the messages are in each of the shards.';
comment on column relay.claims.worker is 'Who holds it: host, process, a random part of this start, loop.';
comment on column relay.claims.claimed_at is 'Since when.';
comment on column relay.claims.locked_until is 'Until when, unless a heartbeat comes.';
comment on column relay.claims.ids is 'Its messages, those of the first shard first.';


-- Of a stuck key only messages up to an id may be sent; later ones wait (run_at = infinity) where no claim meets them.
-- Whatever waits has a row here, and whatever is due here is looked at: nothing can be forgotten.
create table relay.stuck_keys (
  sink      text not null,
  key_hash  bigint not null,
  key       text not null,
  upto      bigint not null,
  retry_at  timestamptz,
  reason    text,
  since     timestamptz not null default clock_timestamp(),
  primary key (sink, key_hash)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
create index stuck_keys_due on relay.stuck_keys (retry_at) where retry_at is not null;
comment on table relay.stuck_keys is 'Keys of ordered sinks whose first message is not delivered yet.';
comment on column relay.stuck_keys.sink is 'Ordered sink.';
comment on column relay.stuck_keys.key_hash is 'Hash of the key: a key may be longer than an index allows. It stands for the key.';
comment on column relay.stuck_keys.key is 'The key.';
comment on column relay.stuck_keys.upto is 'Messages of the key with a higher id must wait.';
comment on column relay.stuck_keys.retry_at is 'When the next waiting message is let go; null = blocked until a person releases it.';
comment on column relay.stuck_keys.reason is 'Why its first message was not delivered.';
comment on column relay.stuck_keys.since is 'Since when.';


create table relay.dead (
  id            bigint primary key,
  sink          text not null,
  shard         smallint not null,
  kind          text not null,
  key           text,
  payload       json,
  body          bytea,
  headers       jsonb,
  message_id    uuid not null,
  attempts      integer not null,
  max_attempts  integer,
  dedupe_key    text,
  prior_tokens  uuid[],
  error         text not null,
  past_errors   text[],
  created_at    timestamptz not null,
  died_at       timestamptz not null default clock_timestamp()
);
create index dead_by_sink on relay.dead (sink, id);
comment on table relay.dead is 'Messages given up, kept until a person requeues or discards them.';
comment on column relay.dead.id is 'The id that it had in relay.outbox, and gets back when it is requeued.';
comment on column relay.dead.sink is 'Where it should have gone.';
comment on column relay.dead.shard is 'As in relay.outbox.';
comment on column relay.dead.kind is 'As in relay.outbox.';
comment on column relay.dead.key is 'As in relay.outbox.';
comment on column relay.dead.payload is 'As in relay.outbox.';
comment on column relay.dead.body is 'As in relay.outbox.';
comment on column relay.dead.headers is 'As in relay.outbox.';
comment on column relay.dead.message_id is 'As in relay.outbox.';
comment on column relay.dead.attempts is 'How often it was tried.';
comment on column relay.dead.max_attempts is 'As in relay.outbox.';
comment on column relay.dead.dedupe_key is 'As in relay.outbox.';
comment on column relay.dead.prior_tokens is 'As in relay.outbox: kept, so that a requeued message is still fenced.';
comment on column relay.dead.error is 'Why it was given up.';
comment on column relay.dead.past_errors is 'Why it was dead before, oldest first.';
comment on column relay.dead.created_at is 'When the message was written.';
comment on column relay.dead.died_at is 'When it was given up.';


create table relay.relays (
  worker      text primary key,
  started_at  timestamptz not null default clock_timestamp(),
  seen_at     timestamptz not null default clock_timestamp(),
  idle_until  timestamptz,
  circuits    jsonb not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
comment on table relay.relays is 'Relay processes that run now. Nothing depends on it for correctness.';
comment on column relay.relays.worker is 'Host, process and a random part of this start.';
comment on column relay.relays.started_at is 'When it started.';
comment on column relay.relays.seen_at is 'When it last said that it is there.';
comment on column relay.relays.idle_until is 'Until when writers should NOTIFY, because it waits; null = it is busy and polls.';
comment on column relay.relays.circuits is 'Sinks that it finds unwell: name to reason.';


-- Routing, inside the writer's transaction, in two triggers. It never fails that transaction for want of a route.
--
-- relay.route() finds the sinks of every row. A query for the routes would cost more than the whole insert, so they are
-- compiled into the function: "\sf relay.route" shows them. It touches no table and runs as the caller, so a fixed
-- search_path, which would double its cost, has nothing to protect.
create function relay.compile_routes() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $compile$
declare
  v_sinks text;
  v_shards text;
  v_strict text;
begin
  -- Two at once would fail with "tuple concurrently updated". A lock on the tables would come too late: both have
  -- written by then, and would wait for each other.
  perform pg_advisory_xact_lock(hashtextextended('relay.compile_routes', 0));

  select string_agg(format($if$
    if %s then
      new.sink := coalesce(new.sink || ',', '') || %L;
    end if;$if$, t.condition, t.sink), '' order by t.sink)
    into v_sinks
    from (select r.sink,
                 string_agg(format(case when r.lo = 0 and r.hi = 100 then 'new.kind like %L'
                                        else 'new.kind like %L and v_bucket >= %s and v_bucket < %s' end,
                                   r.kind_like, r.lo, r.hi), ' or ' order by r.kind, r.lo) as condition
            from relay.routes r group by r.sink) t;
  select 'case new.sink '
         || string_agg(format('when %L then abs((v_hash >> 32) %% %s)', s.name, s.shards), ' ' order by s.name)
         || ' else 0 end'
    into v_shards
    from relay.sinks s where s.shards > 0;
  select format($if$
  if new.key is not null and new.due_at is null and new.sink in (%s) then
    -- The id must be drawn under the lock: then ids of one key commit in their order. What comes back keeps its id.
    perform pg_advisory_xact_lock(v_hash);
    new.id := nextval('relay.outbox_id_seq');
  end if;$if$, string_agg(quote_literal(s.name), ', ' order by s.name))
    into v_strict
    from relay.sinks s where s.strict having count(*) > 0;

  execute format('create or replace function relay.route() returns trigger language plpgsql as %L', format($route$
declare
  v_hash constant bigint := relay.hash_of(new.key, new.message_id);
  v_bucket constant bigint := abs(v_hash %% 100);
begin
  if new.sink is null then%s
    if new.sink is null then
      new.sink := 'unrouted';
    end if;
  end if;
  new.shard := %s;%s
  return new;
end
$route$, coalesce(v_sinks, ''), coalesce(v_shards, '0'), coalesce(v_strict, '')));
end
$compile$;
select relay.compile_routes();

create function relay.on_routes_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform relay.compile_routes();
  return null;
end
$$;
create trigger compile after insert or delete or truncate or update of kind, sink, lo, hi on relay.routes
  for each statement execute function relay.on_routes_changed();
create trigger compile after insert or delete or truncate or update of name, shards, strict on relay.sinks
  for each statement execute function relay.on_routes_changed();

-- relay.route_special() serves the rows that need more: several sinks (their names joined by commas), a dedupe_key, a
-- time. It runs as the owner of the schema, so that an application needs no right but INSERT. A session keeps the plans
-- that it makes while the table is still empty: they must not be plans for an empty table. Without sequential scans those
-- of small tables cost so much on paper that jit would compile them.
create function relay.route_special() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
as $$
declare
  v_sinks text[] := string_to_array(new.sink, ',');
  v_sink text;
  v_strict boolean;
begin
  if new.dedupe_key is not null then
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

grant usage on sequence relay.outbox_id_seq to public;
create trigger route_1_match before insert on relay.outbox
  for each row when (new.sink is null or new.shard is null) execute function relay.route();
create trigger route_2_special before insert on relay.outbox
  for each row when (new.dedupe_key is not null or new.run_at is not null or new.sink like '%,%')
  execute function relay.route_special();


-- NOTIFY makes commits queue up behind each other, so a writer sends it only while some relay has said that it waits.
-- It carries nothing: whatever grows with the data would some day pass the limit of 8000 bytes.
--
-- A transaction that has sent NOTIFY cannot be prepared, and no writer's transaction may fail for a wake-up. So where
-- the server allows two-phase commit the relays poll, unless relay.notify (a setting of the session, the role or the
-- database) is "on" for writers that never prepare. "off" switches NOTIFY off anywhere.
create function relay.wake() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if (case current_setting('relay.notify', true)
        when 'on' then true
        when 'off' then false
        else current_setting('max_prepared_transactions') = '0'
      end)
     and exists (select from relay.relays where idle_until > clock_timestamp()) then
    perform pg_notify('relay', '');
  end if;
  return null;
end
$$;
create trigger wake after insert on relay.outbox for each statement execute function relay.wake();


-- Who moves a claimed message by hand, to another time or sink, takes it out of its claim: the settle of that claim
-- does not find it any more, and nothing else would ever look for it.
create function relay.unclaim() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  new.prior_tokens := array_append(new.prior_tokens, new.claim_token);
  new.claim_token := null;
  return new;
end
$$;
create trigger unclaim before update of sink, shard, run_at on relay.outbox
  for each row when (new.claim_token is not null) execute function relay.unclaim();


-- For applications: any language that can call a function.
create function relay.publish(kind text, payload json, key text default null, headers jsonb default null,
                              message_id uuid default null, sink text default null)
returns uuid
language plpgsql set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_message_id constant uuid := coalesce($5, gen_random_uuid());
begin
  insert into relay.outbox (kind, payload, key, headers, message_id, sink) values ($1, $2, $3, $4, v_message_id, $6);
  return v_message_id;
end
$$;
comment on function relay.publish is 'Write an event in the caller''s transaction; answers its message_id.';

create function relay.enqueue(kind text, args json, run_at timestamptz default null, max_attempts integer default null,
                              dedupe_key text default null, headers jsonb default null, key text default null,
                              sink text default null)
returns uuid
language plpgsql set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_message_id constant uuid := gen_random_uuid();
  v_rows bigint;
begin
  insert into relay.outbox (kind, payload, run_at, max_attempts, dedupe_key, headers, key, sink, message_id)
  values ($1, $2, $3, $4, $5, $6, $7, $8, v_message_id)
  on conflict do nothing;
  get diagnostics v_rows = row_count;
  return case when v_rows > 0 then v_message_id end;
end
$$;
comment on function relay.enqueue is
  'Write a job in the caller''s transaction; answers its message_id, or null where a live message has its dedupe_key.';


-- Two group roles, to be granted to the roles that log in. Whoever applies this without the right to create roles gets
-- a notice, and grants the same by hand.
do $$
begin
  if not exists (select from pg_roles where rolname = 'relay_writer') then
    create role relay_writer nologin;
  end if;
  if not exists (select from pg_roles where rolname = 'relay_worker') then
    create role relay_worker nologin;
  end if;
exception
  when insufficient_privilege then
    raise notice 'roles relay_writer and relay_worker were not created: this needs CREATEROLE';
  when duplicate_object or unique_violation then
    null;
end
$$;

do $$
begin
  if exists (select from pg_roles where rolname = 'relay_writer') then
    grant usage on schema relay to relay_writer;
    -- By column: a shard or a claim of a writer's own making would keep its message from ever being sent.
    grant insert (sink, kind, key, payload, body, headers, message_id, run_at, max_attempts, dedupe_key)
       on relay.outbox to relay_writer;
    grant execute on function relay.publish, relay.enqueue, relay.hash_of to relay_writer;
  end if;
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant usage on schema relay to relay_worker;
    grant select, insert, update, delete on relay.outbox, relay.claims, relay.stuck_keys, relay.dead, relay.relays,
                                             relay.sinks, relay.routes
       to relay_worker;
    grant select on relay.migrations to relay_worker;
    grant execute on function relay.hash_of to relay_worker;
  end if;
end
$$;
revoke execute on function relay.compile_routes(), relay.on_routes_changed(), relay.route(), relay.route_special(),
                           relay.wake() from public;
