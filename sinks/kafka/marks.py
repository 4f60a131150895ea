"""What became of a claim, as it is committed together with the claim's messages.

| text | means |
| --- | --- |
| `a` | all of its messages were sent |
| `o12.1.1` | only those of ids 18, 19 and 20 |
| `b12.3` | all but those of ids 18 and 21 |
| `O…`, `B…` | the same, and nothing more may be sent under it: another sender goes on; `O`: revoked |

Ids are hexadecimal, and each but the first is the distance to the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final


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
