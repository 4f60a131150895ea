"""Claim tokens that say who sends and since when, so that whoever claims the same messages later knows where to look.

The first half is the sender's *identity*, random and kept while it lives; the last six bytes are milliseconds since
1970, by the sender's clock. They are UUIDs of version 8, which leaves their content to their maker (RFC 9562).
"""

from __future__ import annotations

import secrets
import time
from uuid import UUID

VERSION = 8


class Sender:
    """A new identity, and the tokens of its claims. None is like another."""

    def __init__(self) -> None:
        identity = bytearray(secrets.token_bytes(8))
        identity[6] = VERSION << 4 | identity[6] & 0x0F
        self.identity = bytes(identity)
        self._last_ms = 0

    def new_token(self) -> UUID:
        self._last_ms = max(self._last_ms + 1, int(time.time() * 1000))
        random = secrets.randbits(14) | 0x8000  # the variant of RFC 9562
        return UUID(bytes=self.identity + random.to_bytes(2) + self._last_ms.to_bytes(6))


def identity_of(token: UUID) -> bytes:
    """Any token has one; one that was not made here serves as well, and once only."""
    return token.bytes[:8]


def made_ms(token: UUID) -> int | None:
    """When it was made, in milliseconds since 1970; None where it was not made here."""
    return int.from_bytes(token.bytes[10:]) if token.version == VERSION else None
