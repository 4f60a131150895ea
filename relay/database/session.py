"""What a session of ours is like from its first statement on, whatever its role or its database prefer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

OPTIONS = (
    # A role may have another default, and each statement of ours is written for this one.
    r"-c default_transaction_isolation=read\ committed",
    # A plan that is made while the queue is empty is kept when it is full: it must not be one that reads all of it.
    "-c enable_seqscan=off",
    "-c enable_bitmapscan=off",
    # Nor one that finds all that waits and sorts it, where an index has the first few in order.
    "-c enable_sort=off",
    "-c jit=off",
)
"""Through a pooler none of these can be set; there, nothing is prepared and every plan is made for the moment. What the
result depends on is set by `begin.sql`."""

PLANNED_ONCE = "-c plan_cache_mode=force_generic_plan"
"""For who runs the same statements again and again: planning one for its values costs as much as running it."""


def options_of(*, brief: bool) -> tuple[str, ...]:
    """Options of a session that does not lead through a pooler.

    Args:
        brief: its few statements are planned for their values.
    """
    return OPTIONS if brief else (*OPTIONS, PLANNED_ONCE)


def conninfo(url: str, *, timeout: float, name: str, options: Sequence[str]) -> str:
    """The connection string for one of ours: what `url` says, and what it leaves open."""
    given = conninfo_to_dict(url)
    ours: dict[str, Any] = {
        "application_name": name,
        # Whatever the role or the database prefers: payloads leave as UTF-8.
        "client_encoding": "UTF8",
        "connect_timeout": max(2, round(min(timeout, 10))),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    if options:
        theirs = given.pop("options", None)
        ours["options"] = " ".join([*([str(theirs)] if theirs else []), *options])
    return make_conninfo("", **{**ours, **given})
