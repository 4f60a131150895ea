"""What an application's handlers see: the message, and what they may raise.

A handler that returns has done its work, whatever it returns. `Retry`, `Reject` and `Hold` say more; any other
exception is a `Retry`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from sinks import base


class Retry(Exception):
    """Try this message again later. Counts as an attempt.

    Args:
        reason: shown by `relay dead` and in logs: no data of the message belongs into it.
        after: at least this long from now; a number is seconds. The relay's own backoff may be longer.
    """

    def __init__(self, reason: str = "the handler asked for another attempt", after: float | timedelta = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after.total_seconds() if isinstance(after, timedelta) else float(after)


class Reject(Exception):
    """Nobody could ever handle this message: it becomes dead at once."""

    def __init__(self, reason: str = "the handler rejected it") -> None:
        super().__init__(reason)
        self.reason = reason


class Hold(Exception):
    """What this kind of message needs is down. Not the message's fault: the attempt is not counted."""

    def __init__(self, reason: str = "what the handler needs is down") -> None:
        super().__init__(reason)
        self.reason = reason


class Message:
    """A message as a handler gets it. JSON is parsed when it is first asked for."""

    def __init__(self, row: base.Message) -> None:
        self.id = row.id
        self.kind = row.kind
        self.key = row.key
        self.headers = row.headers
        self.message_id = row.message_id
        """The same at every attempt, and of every copy."""
        self.attempts = row.attempts
        """This attempt included."""
        self.body = row.body
        """What was written instead of a payload, for what is not JSON; else None."""
        self.data = row.data
        """The payload's text or the body, byte for byte."""
        self._created_us = row.created_us

    @cached_property
    def payload(self) -> Any:
        """What the JSON says.

        Raises:
            ValueError: the message has a body.
        """
        if self.body is not None:
            raise ValueError("the message has a body and no payload")
        return json.loads(self.data)

    @property
    def args(self) -> list[Any]:
        """The payload as a job's arguments: an array as it is, anything else as the only one."""
        return self.payload if isinstance(self.payload, list) else [self.payload]

    @property
    def created_at(self) -> datetime:
        """When it was written, by the database's clock."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self._created_us)

    def __repr__(self) -> str:
        return f"<Message id={self.id} kind={self.kind!r} message_id={self.message_id}>"
