"""What one claim says of the destinations of a sink, and what a relay holds back because of it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from relay.claims.claim import Claim
from relay.claims.destinations import Destinations, HeldBack
from sinks.base import DELIVERED, Batch, Hold, Message, Outcome, Sink, SinkConfig
from sinks.testing.messages import message


class ByKind(Sink):
    """Its destinations are named as the messages' kinds."""

    def destination(self, message: Message) -> str | None:
        if message.kind == "raises":
            raise RuntimeError
        return message.kind

    def send(self, batch: Batch) -> Sequence[Outcome]:
        return [DELIVERED] * len(batch.messages)


def known() -> Destinations:
    destinations = Destinations()
    destinations.of(ByKind(SinkConfig("sink", None)))
    return destinations


def claim(*kinds: str, keys: Sequence[str | None] = (), ordered: bool = False) -> Claim:
    messages = [message(number, kind=kind, key=keys[number] if keys else None) for number, kind in enumerate(kinds)]
    return Claim(uuid4(), "sink", messages, [], [None] * len(messages), 0, 0, shard_of=[0] * ordered * len(messages))


def test_what_goes_to_an_unavailable_destination_is_held_back_until_it_took_a_message() -> None:
    destinations = known()
    first = claim("a", "b", "raises")
    assert destinations.hold_back(first) == {}
    found = destinations.findings(first, [Hold("missing", "a"), DELIVERED, DELIVERED])
    assert (found["a"].refused, found["a"].news, found["a"].probe) == (True, True, False)
    held = destinations.hold_back(claim("b", "a", "raises"))
    assert held == {1: HeldBack("missing", "a")}
    probe = claim("a", "a")
    probe.probes[0] = "a"
    assert destinations.hold_back(probe).keys() == {1}
    found = destinations.findings(probe, [DELIVERED, HeldBack("missing", "a")])
    assert (found["a"].works, found["a"].delivered, found["a"].reason) == (True, 1, "missing")
    assert destinations.hold_back(claim("a")) == {}


def test_a_probe_that_failed_is_no_news() -> None:
    destinations = known()
    destinations.findings(claim("a"), [Hold("missing", "a")])
    probe = claim("a")
    probe.probes[0] = "a"
    found = destinations.findings(probe, [Hold("denied", "a")])
    assert (found["a"].probe, found["a"].news, found["a"].reason) == (True, False, "denied")


def test_what_is_held_back_says_nothing_of_its_destination() -> None:
    destinations = known()
    destinations.findings(claim("a"), [Hold("missing", "a")])
    found = destinations.findings(claim("a"), [HeldBack("missing", "a")])
    assert (found["a"].refused, found["a"].works) == (False, False)


def test_a_key_is_not_overtaken_by_its_later_messages() -> None:
    destinations = known()
    destinations.refresh({"a": "missing"}, frozenset())
    mixed = claim("a", "b", "b", keys=["k", "k", "other"], ordered=True)
    assert destinations.hold_back(mixed).keys() == {0, 1}
    assert destinations.hold_back(claim("a", "b", "b", keys=["k", "k", "other"])).keys() == {0}


def test_the_only_destination_is_left_to_the_circuit() -> None:
    destinations = known()
    destinations.sole = "a"
    found = destinations.findings(claim("a"), [Hold("missing", "a")])
    assert not found["a"].parked
    assert destinations.hold_back(claim("a")) == {}
    destinations.refresh({"a": "missing"}, frozenset({"a"}))
    assert destinations.findings(claim("other"), [DELIVERED])["a"].works


def test_a_sink_of_which_nothing_is_delivered_says_why() -> None:
    destinations = known()
    destinations.findings(claim("a"), [Hold("missing", "a")])
    said = [destinations.blocked]
    destinations.findings(claim("b"), [DELIVERED])
    said.append(destinations.blocked)
    destinations.findings(claim("a"), [DELIVERED])
    # As far as anybody knows, until another one takes messages.
    destinations.findings(claim("c"), [Hold("denied", "c")])
    said.append(destinations.blocked)
    assert said == ["a: missing", None, "c: denied"]


def test_what_was_just_learnt_is_not_forgotten_for_an_older_look() -> None:
    """The database knows it once the claim is settled."""
    destinations = known()
    destinations.findings(claim("a"), [Hold("missing", "a")])
    destinations.findings(claim("b"), [DELIVERED])
    destinations.refresh({}, frozenset())
    assert destinations.hold_back(claim("a")).keys() == {0}
    destinations.findings(claim("a"), [Hold("missing", "a")])
    assert destinations.blocked is None
