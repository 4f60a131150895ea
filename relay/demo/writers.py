"""The demo's application: several connections that write messages, each transaction as a whole or not at all."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import psycopg

from relay.errors import RelayError
from relay.write.messages import Event
from relay.write.outbox import publish_many

WRITERS: Final = 6
MESSAGES_PER_S: Final = 1000.0
ROLLED_BACK: Final = 6
"""Every so manyth transaction."""

ORDERS_SHARE: Final = 0.03
"""Of the kind that goes to all four brokers: the one that plays SQS is slow."""


@dataclass
class Transaction:
    """What is written together."""

    at: float
    """Seconds after the start."""
    messages: list[Event]
    """Each with a message id of its own."""
    rolled_back: bool
    done: bool = False


def plan(messages: int) -> list[Transaction]:
    """Transactions of all sizes, with so many messages together, those that are rolled back included."""
    transactions: list[Transaction] = []
    planned = 0
    while planned < messages:
        size = min(random.randint(1, 60), messages - planned)
        orders = range(planned + 1, planned + size + 1)
        rolled_back = len(transactions) % ROLLED_BACK == ROLLED_BACK - 1
        transactions.append(Transaction(planned / MESSAGES_PER_S, [_message(number) for number in orders], rolled_back))
        planned += size
    return transactions


def _message(number: int) -> Event:
    customer = random.randint(1, 500)
    if random.random() < ORDERS_SHARE:
        order = {"order": number, "customer": customer, "total": "9.90"}
        return Event("OrderPlaced", [order], f"customer-{customer}", {"queue": "orders"}, uuid4())
    if number % 2:
        to = random.choice(("default", "mailers"))
        return Event("SendReceipt", [number, "de"], headers={"queue": to}, message_id=uuid4())
    article = number % 97
    return Event("StockChanged", {"article": article, "by": -1}, f"article-{article}", message_id=uuid4())


class Writers:
    """The connections, each with its thread."""

    def __init__(self, url: str, transactions: Sequence[Transaction]) -> None:
        self._url = url
        self._todo: queue.SimpleQueue[Transaction] = queue.SimpleQueue()
        for transaction in transactions:
            self._todo.put(transaction)
        self._threads = [threading.Thread(target=self._run, name=f"writer {n}") for n in range(WRITERS)]
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._error: psycopg.Error | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def check(self) -> None:
        """
        Raises:
            RelayError: a transaction failed.
        """
        if self._error is not None:
            raise RelayError(f"writing failed: {self._error}") from self._error

    def _run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._stopping.is_set():
                    transaction = self._todo.get_nowait()
                    self._stopping.wait(transaction.at - (time.monotonic() - self._began))
                    _write(connection, transaction)
        except queue.Empty:
            pass
        except psycopg.Error as error:
            self._error = error


@contextmanager
def writing(url: str, transactions: Sequence[Transaction]) -> Iterator[Writers]:
    """Write while the block runs, or until everything is written."""
    writers = Writers(url, transactions)
    writers.start()
    try:
        yield writers
    finally:
        writers.stop()


def _write(connection: psycopg.Connection[Any], transaction: Transaction) -> None:
    with connection.transaction() as block:
        publish_many(connection, transaction.messages)
        if transaction.rolled_back:
            raise psycopg.Rollback(block)
    transaction.done = True
