-- What each relay is and serves: for "relay status", for whoever wonders why a sink is not delivered, and for relays that
-- disagree about where a sink is. A relay of an earlier release says nothing here: null.
alter table relay.relays add column host text;
alter table relay.relays add column version text;
alter table relay.relays add column backend_pid integer;
alter table relay.relays add column sinks jsonb;
comment on column relay.relays.host is 'Host that it runs on.';
comment on column relay.relays.version is 'Its release.';
comment on column relay.relays.backend_pid is
  'Server process of the session that says that it is there: gone with it; null = behind a pooler, nobody can tell.';
comment on column relay.relays.sinks is
  'Its sinks: name to {destination: fingerprint of where it delivers, since: when it first said so, in seconds since 1970, '
  'waits: why it does not serve it now, or null}.';


-- Relays that run now. One that was killed is gone as soon as its session is, and after 30 seconds in any case.
create view relay.live_relays as
select r.*
  from relay.relays r
 where r.seen_at > clock_timestamp() - interval '30 seconds'
   and (r.backend_pid is null or exists (select from pg_stat_activity a where a.pid = r.backend_pid));
comment on view relay.live_relays is 'Relay processes that run now.';

-- What each of them says of each of its sinks.
create view relay.serving as
select r.worker, r.host, s.name as sink, s.said ->> 'destination' as destination, (s.said ->> 'since')::float8 as since,
       s.said ->> 'waits' as waits
  from relay.live_relays r
 cross join lateral jsonb_each(r.sinks) as s (name, said);
comment on view relay.serving is 'Sinks of the relays that run now; waits = why it is not served by that relay.';

do $$
begin
  if exists (select from pg_roles where rolname = 'relay_worker') then
    grant select on relay.live_relays, relay.serving to relay_worker;
  end if;
end
$$;
