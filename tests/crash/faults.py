"""What goes wrong on the wires: connections are slow for a while, or cut at a random byte."""

from __future__ import annotations

import random

from tests.servers.proxy import Direction, FaultProxy

DIRECTIONS = (Direction.TO_SERVER, Direction.TO_CLIENT)
FARTHEST_CUT = 60_000
"""Bytes."""
LONGEST_DELAY_S = 0.06
"""So slow that a kill falls into every step of a send, and far from every time-out."""


def disturb(proxy: FaultProxy, chance: random.Random) -> None:
    """Do one such thing to the connections of a proxy; what it did before that lasts is over."""
    for direction in DIRECTIONS:
        proxy.slow(direction)
    direction = chance.choice(DIRECTIONS)
    if chance.random() < 0.5:
        proxy.slow(direction, delay=chance.uniform(0, LONGEST_DELAY_S))
    else:
        proxy.cut_after(chance.randrange(1, FARTHEST_CUT), direction, reset=chance.random() < 0.5)
