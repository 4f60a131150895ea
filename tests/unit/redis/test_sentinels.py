"""Which replicas count as those that the sentinels could promote."""

from __future__ import annotations

import pytest

from sinks.redis.sentinels import _promotable

PRIMARY = ("10.0.0.1", 6379)
REPLICA = {"ip": "10.0.0.2", "port": "6379", "flags": "slave", "slave-priority": "100", "role-reported": "slave"}


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"master-link-status": "err"}, True),
        ({"slave-priority": "0"}, False),
        ({"flags": "s_down,slave"}, False),
        ({"flags": "slave,disconnected"}, False),
        ({"ip": PRIMARY[0]}, False),
        ({"role-reported": "master"}, True),
    ],
)
def test_what_could_be_promoted(changes: dict[str, str], counts: bool) -> None:
    """One whose link to the primary is down may be: a partition may be why, and then it will be. So may a former
    primary in the ten seconds until the sentinels demote it: a second fail-over would bring its old data back."""
    assert _promotable({**REPLICA, **changes}, PRIMARY) is counts
