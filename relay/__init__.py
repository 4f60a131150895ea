"""Outbox relay. An application that writes messages needs no more than what is named here."""

from relay.json_text import RawJson
from relay.messages import Event, Job
from relay.outbox import enqueue, enqueue_many, publish, publish_many

__all__ = ["Event", "Job", "RawJson", "enqueue", "enqueue_many", "publish", "publish_many"]
