-- Claims that died with a message in them, counted apart from tokens: a token is kept for the broker's fence, also where a
-- planned stop left an outcome unknown. Only deaths make a message suspect, and it is then claimed alone.
alter table relay.outbox add column deaths smallint;
alter table relay.dead add column deaths smallint;
comment on column relay.outbox.deaths is 'Claims of it that ended with their relay, or with a crash of the sink; null = none.';
comment on column relay.dead.deaths is 'As in relay.outbox.';


-- A fence may answer that an earlier claim had delivered a message already, so that it was not sent again. Whoever
-- requeued that message wants to know; its row in relay.outbox is gone by then.
create table relay.arrived (
  id          bigint primary key,
  sink        text not null,
  message_id  uuid not null,
  found_at    timestamptz not null default clock_timestamp()
);
comment on table relay.arrived is
  'Messages that were not sent again, because the broker had them from an earlier claim. Kept for a day.';
comment on column relay.arrived.id is 'The id that it had in relay.outbox.';
comment on column relay.arrived.sink is 'Where it had arrived.';
comment on column relay.arrived.message_id is 'As in relay.outbox.';
comment on column relay.arrived.found_at is 'When a relay found that out.';


-- The errors of earlier attempts, each different one once and the latest twenty: what the next error replaces.
create function relay.remember(past text[], last text, next text, attempts integer) returns text[]
language sql immutable parallel safe
return case when last is null or attempts < 1 or last is not distinct from next then past
            else (array_append(past, 'up to attempt ' || attempts::text || ': ' || last))
                 [greatest(coalesce(cardinality(past), 0) - 18, 1):] end;
comment on function relay.remember is 'Past errors of a message whose last one is about to be replaced after so many attempts.';

-- Tokens of earlier claims whose outcome nobody learnt, with one more. Each claim asks the broker about all of them: a
-- hundred is a bound for outages that last. The mark of a later claim tells what an earlier one had delivered.
create function relay.add_token(tokens uuid[], token uuid) returns uuid[]
language sql immutable parallel safe
return case when token is null then tokens
            else (array_append(tokens, token))[greatest(coalesce(cardinality(tokens), 0) - 98, 1):] end;
comment on function relay.add_token is 'Prior tokens and one more, the latest hundred; a null token changes nothing.';


-- Waiting messages have run_at = infinity, with a row in relay.stuck_keys that lets them go. A writer's own would wait for
-- ever. (What is restored or put back by the relay has its shard.)
create function relay.refuse_infinity() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'check_violation',
    message = 'relay.outbox.run_at: expected a point in time or null, got infinity: such a message would never be sent';
end
$$;
create trigger route_0_refuse before insert on relay.outbox
  for each row when (new.run_at = 'infinity' and new.shard is null) execute function relay.refuse_infinity();


revoke execute on function relay.remember(text[], text, text, integer), relay.add_token(uuid[], uuid),
                           relay.refuse_infinity()
  from public;
do $$
begin
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant select, insert, update, delete on relay.arrived to relay_worker;
    grant execute on function relay.remember, relay.add_token to relay_worker;
  end if;
end
$$;
