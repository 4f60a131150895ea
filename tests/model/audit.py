"""What was committed, as the database itself says: triggers write it down in the writers' own transactions.

So nothing has to be guessed where a commit's answer was lost, or the server crashed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import psycopg

INSTALL = """
create table public.model_audit (
  at bigint generated always as identity, what text, id bigint, sink text, number bigint, key text, later boolean
);
grant insert, select on public.model_audit to public;
create function public.model_audit() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
  insert into public.model_audit (what, id, sink, number, key, later)
  values (tg_argv[0], new.id, new.sink, (new.payload ->> 0)::bigint, new.key, to_jsonb(new) ->> 'run_at' is not null);
  return null;
end
$$;
create trigger model_audit after insert on relay.outbox for each row execute function public.model_audit('live');
create trigger model_audit after insert on relay.dead for each row execute function public.model_audit('dead');
"""


@dataclass
class Committed:
    """Messages of one sink."""

    ids: dict[int, int] = field(default_factory=dict)
    """By number."""
    died: set[int] = field(default_factory=set)
    """Numbers of those that were dead at some time."""
    unordered: set[int] = field(default_factory=set)
    """Numbers of those that have no place in the order: scheduled, or routed later than written."""


def install(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(INSTALL)


def read(url: str) -> dict[str, Committed]:
    """By sink."""
    found: dict[str, Committed] = defaultdict(Committed)
    unrouted: set[int] = set()
    with psycopg.connect(url) as conn:
        for what, id, sink, number, later in conn.execute(
            "select what, id, sink, number, later from public.model_audit order by at"
        ):
            if sink == "unrouted":
                unrouted.add(number)
                continue
            of = found[sink]
            if what == "dead":
                of.died.add(number)
            else:
                of.ids.setdefault(number, id)
                if later or number in unrouted:
                    of.unordered.add(number)
    return found
