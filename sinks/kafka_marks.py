"""What is committed together with each transaction, so that anybody can tell later what it contained.

A sender writes its marks as the metadata of one committed offset of a consumer group of its own; Kafka commits it
with the records, or not at all. A mark says of one claim: revoked, or which of its messages were sent. As text:

    TOKEN=r              revoked: nothing was sent under it, and nothing may be
    TOKEN=a              all of its messages were sent
    TOKEN=o12.1.1        only those of ids 12, 13 and 14
    TOKEN=b12.3          all but those of ids 12 and 15

joined by spaces, ids in hexadecimal and each but the first as the distance to the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

LONGEST: Final = 3800
"""Characters. Kafka takes 4096 bytes (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of one claim."""

    ids: frozenset[int] = frozenset()
    only: bool = True
    """Whether the messages with these ids were sent, or all but those."""
    revoked: bool = False

    def sent(self, message_id: int) -> bool:
        return not self.revoked and (message_id in self.ids) is self.only

    def to_text(self) -> str:
        if self.revoked:
            return "r"
        if not self.ids and not self.only:
            return "a"
        return ("o" if self.only else "b") + _pack(sorted(self.ids))

    @classmethod
    def from_text(cls, text: str) -> Mark:
        match text[:1]:
            case "r":
                return REVOKED
            case "a":
                return cls(only=False)
            case letter:
                return cls(frozenset(_unpack(text[1:])), only=letter == "o")

    @classmethod
    def of(cls, sent: Iterable[int], unsent: Iterable[int]) -> Mark:
        """The shorter way to say it."""
        sent, unsent = frozenset(sent), frozenset(unsent)
        return cls(sent) if len(sent) < len(unsent) else cls(unsent, only=False)


REVOKED: Final = Mark(revoked=True)


def _pack(ids: Sequence[int]) -> str:
    return ".".join(f"{after - before:x}" for before, after in zip([0, *ids], ids, strict=False))


def _unpack(text: str) -> Iterable[int]:
    return accumulate(int(part, 16) for part in text.split(".") if part)


def marks_to_text(marks: dict[str, Mark]) -> str:
    """The latest first, and as many as there is room for.

    Raises:
        ValueError: not even the latest has room.
    """
    text = ""
    for number, (token, mark) in enumerate(reversed(marks.items())):
        longer = f"{text} {token}={mark.to_text()}".strip()
        if len(longer) > LONGEST:
            if number == 0:
                raise ValueError("a mark that is too long")
            break
        text = longer
    return text


def marks_from_text(text: str) -> dict[str, Mark]:
    """The latest last."""
    parts = (part.partition("=") for part in reversed(text.split()))
    return {token: Mark.from_text(mark) for token, _, mark in parts}
