-- An application that was written for Debezium's outbox event router goes on writing to a table of that layout:
--
--   id uuid, aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload jsonb, and any others
--
-- A trigger on its table makes a message of every row. What is a key and what a header there is here as well:
--
--   id → message_id     type → kind     aggregateid → key     payload → payload
--   aggregatetype, and every further column → a header of its name
--
-- How the trigger is attached says what becomes of the row itself:
--
--   after insert                  it stays, for whoever deletes it today
--   before insert                 it is not stored, and the insert counts no rows
--   instead of insert, on a view  it is not stored, and the insert counts it: relay.debezium_outbox is such a view

-- Debezium's column tracingspancontext holds java.util.Properties as their store() writes them: a comment, then
-- name=value by line, with "=", ":", "#" and "!" behind a backslash.
create function relay.read_properties(properties text) returns jsonb
language sql immutable parallel safe set search_path = pg_catalog, pg_temp
return (
  select coalesce(jsonb_object_agg(p.found[1], regexp_replace(p.found[2], '\\(.)', '\1', 'g')), '{}')
    from regexp_matches(properties, '^[ \t]*([^\s#!=:\\]+)[ \t]*[=:][ \t]*([^\r\n]*)', 'gn') p (found)
);

-- It runs as the owner of the schema, so that whoever may write to the application's table needs no other right.
create function relay.accept_debezium() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  v_type constant regtype := pg_typeof(new.payload);
  v_rest record := new;
  v_columns jsonb;
  v_headers jsonb;
  v_payload json;
  v_body bytea;
begin
  if new.payload is null then
    v_body := '';
  elsif v_type = 'bytea'::regtype then
    v_body := new.payload;
  elsif v_type in ('json'::regtype, 'jsonb'::regtype) then
    v_payload := new.payload::text;
  else
    begin
      v_payload := new.payload::text;
    exception
      when invalid_text_representation then
        v_body := convert_to(new.payload::text, 'UTF8');
    end;
  end if;

  -- Without the payload, which may be large, and may be a text that jsonb does not take.
  v_rest.payload := null;
  v_columns := to_jsonb(v_rest);
  select jsonb_object_agg(c.key, c.value) into v_headers
    from jsonb_each(v_columns - '{id,aggregateid,type,payload}'::text[]) c
   where c.value <> 'null';
  if v_columns ->> 'tracingspancontext' is not null then
    v_headers := relay.read_properties(v_columns ->> 'tracingspancontext') || v_headers;
  end if;

  insert into relay.outbox (kind, key, payload, body, headers, message_id)
  values (coalesce(nullif(v_columns ->> 'type', ''), v_columns ->> 'aggregatetype'), v_columns ->> 'aggregateid',
          v_payload, v_body, v_headers, (v_columns ->> 'id')::uuid);
  if tg_when = 'INSTEAD OF' then
    return new;
  end if;
  return null;
end
$$;
comment on function relay.accept_debezium is
  'Trigger for a table or view in the layout of Debezium''s outbox event router: makes a message of every new row.';

create view relay.debezium_outbox as
  select null::uuid as id, null::varchar(255) as aggregatetype, null::varchar(255) as aggregateid,
         null::varchar(255) as type, null::jsonb as payload
   where false;
create trigger accept instead of insert on relay.debezium_outbox
  for each row execute function relay.accept_debezium();
comment on view relay.debezium_outbox is 'What is inserted here becomes a message. Always empty.';
comment on column relay.debezium_outbox.id is 'Message id.';
comment on column relay.debezium_outbox.aggregatetype is 'Header aggregatetype: what Debezium makes the topic of.';
comment on column relay.debezium_outbox.aggregateid is 'Key.';
comment on column relay.debezium_outbox.type is 'Kind.';
comment on column relay.debezium_outbox.payload is 'Payload; null becomes an empty body.';

-- Whoever may attach the trigger may write messages by it.
revoke execute on function relay.accept_debezium(), relay.read_properties(text) from public;
do $$
begin
  if exists (select from pg_roles where rolname = 'relay_writer') then
    grant execute on function relay.accept_debezium() to relay_writer;
    grant insert on relay.debezium_outbox to relay_writer;
  end if;
end
$$;
