"""What the sentinels say: who is the primary, and how many replicas they could promote in its place.

A demoted primary, and one that a partition cuts off, goes on acknowledging what it will lose. So the sentinels are
asked again before a batch counts as delivered where their last answer is older than `FRESH_S`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import redis

from sinks.base import SinkConfig, SinkUnavailable
from sinks.redis.connection import RedisConnection, request
from sinks.redis.errors import describe
from sinks.redis.pool import pool_at, sentinel_pools
from sinks.redis.url import Address, Place

log = logging.getLogger("sinks.redis")

FRESH_S: Final = 1.0
SILENT_S: Final = 30.0
"""A sentinel that did not answer is left alone for so long where the others suffice."""
DOWN: Final = {"s_down", "o_down", "disconnected"}


@dataclass(frozen=True, slots=True)
class View:
    """What one sentinel says, or all of them together."""

    primary: Address
    epoch: int
    """Of its configuration: the higher one is the newer one."""
    candidates: int
    """Replicas that could be promoted."""
    replacing: bool = False
    """Whether that is under way: it ends with another primary, or it fails."""


class _Doubt(Exception):
    """A sentinel answers, but does not vouch for any primary."""


class Sentinels:
    """All sentinels of a URL, for one sender."""

    def __init__(self, place: Place, config: SinkConfig) -> None:
        self._service = place.service
        self._connections = [RedisConnection(pool) for pool in sentinel_pools(place, config)]
        self._silent_until: dict[RedisConnection, float] = {}
        self._view: View | None = None
        self._asked_at = 0.0

    def view(self) -> View:
        """What they say together, at most `FRESH_S` old.

        At least half of them must answer: no majority, without which nothing is promoted, is then without one of those
        that answered. Of several answers the one of the newest configuration counts.

        Raises:
            SinkUnavailable: too few of them vouch for a primary, or it is being replaced.
        """
        now = time.monotonic()
        if self._view is None or now - self._asked_at >= FRESH_S:
            self._view = None
            self._view = self._ask(now)
            self._asked_at = now
        return self._view

    def forget(self) -> None:
        """Ask anew the next time."""
        self._view = None

    def drop(self) -> None:
        """Close the connections; the next question makes new ones."""
        self.forget()
        for connection in self._connections:
            connection.drop()

    def _ask(self, now: float) -> View:
        needed = (len(self._connections) + 1) // 2
        views: list[View] = []
        reason = ""
        for connection in sorted(self._connections, key=lambda each: self._silent_until.get(each, 0.0)):
            if len(views) >= needed and self._silent_until.get(connection, 0.0) > now:
                break
            try:
                views.append(self._ask_one(connection))
            except _Doubt as doubt:
                reason = str(doubt)
            except SinkUnavailable as error:
                reason = error.reason
                self._silent_until[connection] = now + SILENT_S
            else:
                self._silent_until.pop(connection, None)
        if len(views) < needed:
            says = f"{len(views)} of {len(self._connections)} sentinels vouch for a primary of {self._service!r}"
            raise SinkUnavailable(f"{says}, {needed} must: {reason}", unknown=False)
        if any(view.replacing for view in views):
            raise SinkUnavailable(f"the sentinels are replacing the primary of {self._service!r}", unknown=False)
        newest = max(views, key=lambda view: view.epoch)
        candidates = max(view.candidates for view in views if view.primary == newest.primary)
        return View(newest.primary, newest.epoch, candidates)

    def _ask_one(self, connection: RedisConnection) -> View:
        words = ("GET-MASTER-ADDR-BY-NAME", "MASTER", "REPLICAS")
        address, *answers = connection.call(*(request("SENTINEL", word, self._service) for word in words))
        for answer in answers:
            if isinstance(answer, redis.ResponseError):
                raise _Doubt(describe(answer))
        if address is None:
            raise _Doubt("it knows no such primary")
        primary = (address[0].decode(), int(address[1]))
        master = _fields(answers[0])
        flags = set(master["flags"].split(","))
        # Once a replica is promoted, the address is the new one while the rest still speaks of the old one.
        same = primary == (master["ip"], int(master["port"]))
        if same and DOWN & flags:
            raise _Doubt("it takes the primary for down")
        candidates = sum(_promotable(each, primary) for each in map(_fields, answers[1]))
        return View(primary, int(master["config-epoch"]), candidates, same and "failover_in_progress" in flags)


def _fields(flat: list[bytes]) -> dict[str, str]:
    texts = [each.decode(errors="replace") for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _promotable(replica: Mapping[str, str], primary: Address) -> bool:
    """Whether it may be promoted, as Redis's `sentinelSelectSlave` chooses.

    That may also be one whose link to the primary is down, and a former primary that is not demoted yet.
    """
    if (replica["ip"], int(replica["port"])) == primary:
        return False
    return not DOWN & set(replica["flags"].split(",")) and replica.get("slave-priority") != "0"


class SentinelPrimary:
    """The primary that the sentinels name.

    Args:
        replicas: how many must confirm; None: each one that could be promoted, so that whoever is has the batch.
    """

    def __init__(self, place: Place, config: SinkConfig, replicas: int | None) -> None:
        self._place = place
        self._config = config
        self._replicas = replicas
        self._sentinels = Sentinels(place, config)
        self._address: Address | None = None
        self.connection = RedisConnection(pool_at(place, config))
        """To the primary, once `find` has found it."""

    def find(self) -> int:
        """Look for the primary; how many replicas must confirm a batch.

        Raises:
            SinkUnavailable: the sentinels do not name one.
        """
        view = self._sentinels.view()
        if view.primary != self._address:
            if self._address is not None:
                moved = (*self._address, *view.primary)
                log.warning("redis_primary service=%s from=%s:%d to=%s:%d", self._place.service, *moved)
            self.connection.drop()
            self.connection = RedisConnection(pool_at(self._place, self._config, view.primary))
            self._address = view.primary
        return view.candidates if self._replicas is None else self._replicas

    def confirm(self, replicas: int) -> None:
        """Check that so many confirmations of what was sent there still suffice.

        Raises:
            SinkUnavailable: they may not.
        """
        try:
            view = self._sentinels.view()
        except SinkUnavailable as error:
            raise SinkUnavailable(error.reason, unknown=True) from error
        if view.primary != self._address:
            raise SinkUnavailable("the sentinels name another primary by now", unknown=True)
        if self._replicas is None and view.candidates > replicas:
            raise SinkUnavailable("another replica could be promoted by now", unknown=True)

    def drop(self) -> None:
        """Close all connections; the next call makes new ones."""
        self.connection.drop()
        self._sentinels.drop()
