-- What the two group roles may do; made where they are missing. Safe to run again, by the owner of the schema.
do $grants$
declare
  v_table regclass;
  v_rights text;
begin
  begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'relay_writer') then
      create role relay_writer nologin;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'relay_worker') then
      create role relay_worker nologin;
    end if;
  exception
    when insufficient_privilege then
      raise notice 'roles relay_writer and relay_worker were not created: this needs CREATEROLE';
    when duplicate_object or unique_violation then
      null;
  end;
  -- Whatever a restore left open: functions are everybody's unless that is taken away.
  revoke execute on all functions in schema relay from public;
  grant execute on function relay.publish, relay.enqueue, relay.hash_of, relay.bucket_of, relay.names_sinks to public;
  if exists (select from pg_catalog.pg_roles where rolname = 'relay_writer') then
    grant usage on schema relay to relay_writer;
    -- By column: a shard or a claim of a writer's own making would keep its message from ever being sent.
    grant insert (sink, kind, key, payload, body, headers, message_id, run_at, max_attempts, dedupe_key)
       on relay.outbox to relay_writer;
    grant insert on relay.debezium_outbox to relay_writer;
    grant execute on function relay.publish, relay.enqueue, relay.hash_of, relay.accept_debezium, relay.read_properties
       to relay_writer;
    grant usage on sequence relay.outbox_id_seq to relay_writer;
  end if;
  if exists (select from pg_catalog.pg_roles where rolname = 'relay_worker') then
    grant usage on schema relay to relay_worker;
    for v_table, v_rights in
      select c.oid::regclass, case when c.relkind = 'r' and c.relname <> 'migrations' then 'select, insert, update, delete'
                                   else 'select' end
        from pg_catalog.pg_class c
       where c.relnamespace = 'relay'::regnamespace and c.relkind in ('r', 'v')
    loop
      execute pg_catalog.format('grant %s on %s to relay_worker', v_rights, v_table);
    end loop;
    grant execute on function relay.hash_of, relay.set_identities, relay.publications, relay.routes_digest, relay.advance_ids,
                              relay.remember, relay.add_token
       to relay_worker;
    grant usage on sequence relay.outbox_id_seq to relay_worker;
  end if;
  revoke usage on sequence relay.outbox_id_seq from public;
end
$grants$
