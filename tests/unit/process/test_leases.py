"""What a lease says to those that ask it from several threads.

A process that was frozen finds its lease over, and its heartbeat may still renew it: a sink that was told "lost" has
stopped half way by then, and whoever looks at its answers must hear the same.
"""

from __future__ import annotations

import time
from uuid import uuid4

from relay.claims.claim import Claim
from relay.process.leases import Lease


def lease(*, asked_ago: float) -> Lease:
    claim = Claim(token=uuid4(), sink="main", messages=[], places=[], max_attempts=[], claimed_us=0, size=0)
    return Lease(claim, 60.0, time.monotonic() - asked_ago)


def test_a_lease_that_was_called_lost_stays_so() -> None:
    ours = lease(asked_ago=61)
    assert ours.lost()
    ours.renewed(time.monotonic())
    assert ours.lost()


def test_a_lease_that_nobody_has_missed_goes_on() -> None:
    """So does one whose renewal came late and before anybody asked."""
    ours = lease(asked_ago=59)
    assert not ours.lost()
    ours = lease(asked_ago=61)
    ours.renewed(time.monotonic())
    assert not ours.lost()


def test_a_lease_that_the_database_does_not_know_is_lost() -> None:
    ours = lease(asked_ago=0)
    ours.lose()
    ours.renewed(time.monotonic())
    assert ours.lost()
