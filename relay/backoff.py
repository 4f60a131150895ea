"""How long to wait before trying again: exponential, with full jitter, and never past its cap."""

from __future__ import annotations

import random


class Backoff:
    """Delays for one thing that keeps failing.

    Args:
        base: the first delay, in seconds.
        cap: the longest delay, in seconds.
        floor: the part of each delay that jitter leaves alone, from 0 to 1.
    """

    def __init__(self, base: float, cap: float, floor: float = 0.5) -> None:
        self._base = base
        self._cap = cap
        self._floor = floor
        self.failures = 0

    def next(self) -> float:
        """Count a failure and say how many seconds to wait."""
        self.failures += 1
        # The exponent is capped before the power is taken: 2.0 ** 1100 raises.
        longest = min(self._cap, self._base * 2.0 ** min(self.failures - 1, 60))
        return longest * (self._floor + (1.0 - self._floor) * random.random())

    def reset(self) -> None:
        self.failures = 0
