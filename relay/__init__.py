"""Outbox relay. An application that writes messages needs no more than what is named here."""

from relay.errors import InvalidMessage, NoTransaction, RelayError, UsageError
from relay.write.json_text import RawJson, set_json_default
from relay.write.messages import Event, Job
from relay.write.outbox import enqueue, enqueue_many, publish, publish_many

__all__ = [
    "Event",
    "InvalidMessage",
    "Job",
    "NoTransaction",
    "RawJson",
    "RelayError",
    "UsageError",
    "enqueue",
    "enqueue_many",
    "publish",
    "publish_many",
    "set_json_default",
]
