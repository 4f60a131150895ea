"""The sum at the end: what was written against what the brokers hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from relay.config.settings import Route
from relay.demo.brokers import Broker, short
from relay.demo.writers import Transaction
from relay.errors import RelayError
from relay.tables import print_table

TITLES: Final = ("BROKER", "WRITTEN", "ROLLED BACK", "DELIVERED", "DUPLICATES", "LOST")


class Sum(NamedTuple):
    """One broker's line."""

    written: int
    """Messages that committed transactions wrote for it."""
    rolled_back: int
    delivered: int
    """Messages that it holds, each counted once."""
    duplicates: int
    """Further copies."""
    lost: int
    strangers: int
    """Messages that it holds and that no committed transaction wrote."""

    @property
    def shown(self) -> tuple[int, ...]:
        """The columns of the table: a stranger shows as more delivered than written."""
        return self[:5]

    @property
    def adds_up(self) -> bool:
        return self.delivered == self.written and not (self.duplicates or self.lost or self.strangers)


def messages_for(sink: str, transactions: Sequence[Transaction], routes: Sequence[Route]) -> list[str]:
    """Short ids of the messages that these transactions write for a sink. Each route is of one kind."""
    kinds = {route.kind for route in routes if route.sink == sink}
    return [
        short(message.message_id)
        for transaction in transactions
        for message in transaction.messages
        if message.kind in kinds
    ]


def add_up(broker: Broker, written: Sequence[str], rolled_back: Sequence[str]) -> Sum:
    """Compare what a broker holds with what was written for it."""
    copies = Counter(broker.ids())
    return Sum(
        written=len(written),
        rolled_back=len(rolled_back),
        delivered=len(copies),
        duplicates=copies.total() - len(copies),
        lost=len(set(written) - copies.keys()),
        strangers=len(copies.keys() - set(written)),
    )


def report(sums: Mapping[str, Sum]) -> None:
    """Print the table.

    Args:
        sums: by the broker's title.

    Raises:
        RelayError: something does not add up.
    """
    print_table(TITLES, [(title, *(f"{number:,}" for number in line.shown)) for title, line in sums.items()])
    wrong = [title for title, line in sums.items() if not line.adds_up]
    if wrong:
        raise RelayError(f"it does not add up: {', '.join(wrong)}")
