"""What became of a claim, and the claim tokens that say where to look for it.

A *mark* is committed together with the claim's messages, into a topic that keeps the marks of a sink.

| text | means |
| --- | --- |
| `a` | all of its messages were sent |
| `o12.1.1` | only those of ids 18, 19 and 20 |
| `b12.3` | all but those of ids 18 and 21 |
| `O…`, `B…` | the same, and nothing more may be sent under it: another sender goes on; `O`: revoked |

Ids are hexadecimal, and each but the first is the distance to the one before.

A *token* holds who sends, and where its marks are: partition, and an offset that no mark of it precedes. So a look-up
needs no clock, and does not depend on how many partitions the topic has by now. Tokens are UUIDs of version 8, which
leaves their content to their maker (RFC 9562):

| bits | hold |
| --- | --- |
| 64, with the version | the sender's *identity*, random |
| 2 | the variant of RFC 9562 |
| 6 | partition |
| 28 | offset, in units of 4096 |
| 12 | of which topic: a topic that was deleted and made again has another id |
| 16 | tells the tokens of one sender apart that agree in all else |
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple
from uuid import UUID, uuid4
from zlib import crc32

VERSION: Final = 8
PARTITIONS: Final = 1 << 6
"""Marks are in the first so many partitions of a topic."""
_BLOCK: Final = 1 << 12
_BLOCKS: Final = 1 << 28
_TAGS: Final = 1 << 12
_COUNTS: Final = 1 << 16
_TEXT: Final = re.compile(r"a|[oObB](?:[0-9a-f]+(?:\.[0-9a-f]+)*)?")


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of one claim."""

    ids: frozenset[int] = frozenset()
    only: bool = True
    """Whether the messages with these ids were sent, or all but those."""
    closed: bool = False
    """Whether nothing more may be sent under it."""

    @property
    def complete(self) -> bool:
        """Whether all was sent."""
        return not self.ids and not self.only

    @property
    def final(self) -> bool:
        """Whether nothing more will be sent under it."""
        return self.complete or self.closed

    def sent(self, message_id: int) -> bool:
        return (message_id in self.ids) is self.only

    def close(self) -> Mark:
        return replace(self, closed=True)

    def to_text(self) -> str:
        if self.complete:
            return "a"
        letter = "o" if self.only else "b"
        return (letter.upper() if self.closed else letter) + _pack(sorted(self.ids))

    @classmethod
    def from_text(cls, text: str) -> Mark:
        """
        Raises:
            ValueError: it is not the text of a mark.
        """
        if not _TEXT.fullmatch(text):
            raise ValueError("not the text of a mark")
        letter = text[:1]
        if letter == "a":
            return cls(only=False)
        return cls(frozenset(_unpack(text[1:])), only=letter in "oO", closed=letter.isupper())

    @classmethod
    def of(cls, sent: Iterable[int], unsent: Iterable[int]) -> Mark:
        """The shorter way to say it."""
        sent, unsent = frozenset(sent), frozenset(unsent)
        return cls(sent) if len(sent) < len(unsent) else cls(unsent, only=False)


NOT_SENT: Final = Mark()


def _pack(ids: Sequence[int]) -> str:
    return ".".join(f"{after - before:x}" for before, after in zip([0, *ids], ids, strict=False))


def _unpack(text: str) -> Iterable[int]:
    return accumulate(int(part, 16) for part in text.split(".") if part)


class Place(NamedTuple):
    """Where the marks of a claim are, in the topic of marks."""

    partition: int
    offset: int
    """None is before it."""
    tag: int | None
    """Of the topic's id, by `tag_of`; None where the token does not tell."""


ANYWHERE: Final = Place(0, 0, None)
"""Of a token that was not made here."""


def tag_of(topic_id: str) -> int:
    """A few bits of a topic's id, which a token has room for."""
    return crc32(topic_id.encode()) % _TAGS


def identity_of(token: UUID) -> bytes:
    """Any token has one; one that was not made here serves as well, and once only."""
    return token.bytes[:8]


def place_of(token: UUID) -> Place:
    """Where its marks are."""
    if token.version != VERSION:
        return ANYWHERE
    packed = int.from_bytes(token.bytes[8:]) // _COUNTS
    packed, tag = divmod(packed, _TAGS)
    packed, block = divmod(packed, _BLOCKS)
    return Place(packed % PARTITIONS, block * _BLOCK, tag)


class Sender:
    """An identity, and the tokens of its claims. None is like another."""

    def __init__(self) -> None:
        self.identity = _new_identity()
        self._place: Place | None = None
        self._count = 0

    @property
    def place(self) -> Place | None:
        """Where its next marks will be; None while that is not known."""
        return self._place

    def move(self, place: Place) -> None:
        """From now on its marks are there."""
        before, self._place = self._place, place
        if before is None:
            return
        if (before.partition, before.tag) != (place.partition, place.tag) or before.offset > place.offset:
            self.identity, self._count = _new_identity(), 0
        elif before.offset // _BLOCK < place.offset // _BLOCK:
            self._count = 0

    def new_token(self) -> UUID:
        if self._place is None:
            return uuid4()
        if self._count == _COUNTS:
            self.identity, self._count = _new_identity(), 0
        partition, offset, tag = self._place
        block = min(offset // _BLOCK, _BLOCKS - 1)
        packed = ((2 * PARTITIONS + partition) * _BLOCKS + block) * _TAGS + (tag or 0)
        packed = packed * _COUNTS + self._count
        self._count += 1
        return UUID(bytes=self.identity + packed.to_bytes(8))


def _new_identity() -> bytes:
    identity = bytearray(secrets.token_bytes(8))
    identity[6] = VERSION << 4 | identity[6] & 0x0F
    return bytes(identity)
