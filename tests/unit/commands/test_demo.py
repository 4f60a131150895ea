"""What of the demo needs no server: its plan, its sum, and what it says where something is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from uuid import uuid4

import pytest

from relay.cli import main
from relay.config.settings import Route
from relay.demo.brokers import short
from relay.demo.count import Sum, add_up, messages_for, report
from relay.demo.writers import plan
from relay.errors import RelayError


class Holding:
    """A broker that holds just these."""

    title = "Broker"

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = list(ids)

    def count(self) -> int:
        return len(self._ids)

    def ids(self) -> list[str]:
        return self._ids


WRITTEN = [short(uuid4()) for _ in range(3)]
ROLLED_BACK = [short(uuid4()) for _ in range(2)]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (WRITTEN, Sum(3, 2, 3, 0, 0, 0)),
        ([*WRITTEN, WRITTEN[0]], Sum(3, 2, 3, 1, 0, 0)),
        (WRITTEN[1:], Sum(3, 2, 2, 0, 1, 0)),
        ([*WRITTEN, ROLLED_BACK[0]], Sum(3, 2, 4, 0, 0, 1)),
        ([ROLLED_BACK[0], *WRITTEN[1:]], Sum(3, 2, 3, 0, 1, 1)),
    ],
    ids=["all", "twice", "lost", "rolled back", "one for another"],
)
def test_sum_says_what_is_wrong(held: list[str], expected: Sum) -> None:
    found = add_up(Holding(held), WRITTEN, ROLLED_BACK)
    assert found == expected
    assert found.adds_up is (held is WRITTEN)


def test_report_names_what_does_not_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RelayError, match="does not add up: Kafka"):
        report({"Redis": Sum(1200, 2, 1200, 0, 0, 0), "Kafka": Sum(3, 2, 2, 0, 1, 0)})
    assert capsys.readouterr().out.splitlines() == [
        "BROKER  WRITTEN  ROLLED BACK  DELIVERED  DUPLICATES  LOST",
        "Redis   1,200    2            1,200      0           0",
        "Kafka   3        2            2          0           1",
    ]


def test_plan_has_all_messages_and_rolls_some_back() -> None:
    transactions = plan(1000)
    assert sum(len(one.messages) for one in transactions) == 1000
    assert {one.rolled_back for one in transactions} == {True, False}
    assert {message.kind for one in transactions for message in one.messages} == {
        "OrderPlaced",
        "SendReceipt",
        "StockChanged",
    }


def test_messages_of_a_sink_follow_the_routes() -> None:
    transactions = plan(100)
    everything = [short(message.message_id) for one in transactions for message in one.messages]
    receipts = [
        short(message.message_id) for one in transactions for message in one.messages if message.kind == "SendReceipt"
    ]
    routes = [Route(kind=kind, sink="all") for kind in ("OrderPlaced", "SendReceipt", "StockChanged")]
    routes.append(Route(kind="SendReceipt", sink="jobs"))
    assert messages_for("all", transactions, routes) == everything
    assert messages_for("jobs", transactions, routes) == receipts


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)
    monkeypatch.setattr("relay.demo.processes.interrupt_once", lambda: None)
    with pytest.raises(SystemExit) as end:
        main(["demo"])
    assert end.value.code == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Error: not installed: moto; run: pip install 'outbox-relay[demo]'\n")
