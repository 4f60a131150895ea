"""Outbox relay. An application that writes messages needs no more than what is named here."""

from relay.write.json_text import RawJson
from relay.write.messages import Event, Job
from relay.write.outbox import enqueue, enqueue_many, publish, publish_many

__all__ = ["Event", "Job", "RawJson", "enqueue", "enqueue_many", "publish", "publish_many"]
