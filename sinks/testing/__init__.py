"""The contract suite for sinks, ours and yours: `contract.py`, and `fenced.py` for those whose receiver refuses a stale
sender. Read `contract.py` first. It needs pytest, which this package does not bring."""

from sinks.testing.contract import SinkContract
from sinks.testing.fenced import FencedSinkContract
from sinks.testing.messages import CLAIMED_US, CREATED_US, PAYLOADS, Received, batch, message

__all__ = [
    "CLAIMED_US",
    "CREATED_US",
    "PAYLOADS",
    "FencedSinkContract",
    "Received",
    "SinkContract",
    "batch",
    "message",
]
