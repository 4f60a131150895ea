"""The JSON text of a Sidekiq job, as Sidekiq's own client writes it (`lib/sidekiq/client.rb`, `job_util.rb`).

Times are seconds with a decimal point: versions up to 7 want float seconds, and version 8, which writes whole
milliseconds, still reads a float as seconds. Arguments are spliced in as text, never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sinks.base import Message
from sinks.redis.plan import Unsendable
from sinks.wire import digits_kept, json_text, rfc3339

ACTIVE_JOB_CLASS: Final = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
"""Rails' own name, which Sidekiq 8's adapter keeps as an alias of its `Sidekiq::ActiveJob::Wrapper`."""

OURS: Final = frozenset({"class", "wrapped", "args", "jid", "created_at", "enqueued_at", "at"})
"""Attributes that header `sidekiq` cannot change."""

_JOB: Final = b'%b,"jid":"%b","created_at":%b%b,"args":%b}'
_JOB_DATA: Final = (
    b'{"job_class":%b,"job_id":"%b","provider_job_id":null,"queue_name":%b,"priority":null,"arguments":%b,'
    b'"executions":0,"exception_executions":{},"enqueued_at":"%b"}'
)


def seconds(microseconds: int) -> bytes:
    """Microseconds as seconds, always with a decimal point."""
    return b"%d.%06d" % divmod(microseconds, 1_000_000)


def attributes(headers: Mapping[str, Any]) -> dict[str, Any]:
    """What header `sidekiq` asks for: `retry`, `queue`, `tags`, …

    Raises:
        Unsendable: it is not an object, or its queue is not a name.
    """
    asked = headers.get("sidekiq")
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        raise Unsendable('header "sidekiq" must be an object of job attributes')
    queue = asked.get("queue", "default")
    if not isinstance(queue, str) or not queue:
        raise Unsendable('"queue" in header "sidekiq" must be a name')
    return {name: value for name, value in asked.items() if name not in OURS}


def scheduled_at(headers: Mapping[str, Any], claimed_us: int) -> float | None:
    """Seconds since 1970 at which Sidekiq itself is to make the job ready; None: now.

    Raises:
        Unsendable: header `relay.at` is not a number.
    """
    at = headers.get("relay.at")
    if at is None:
        return None
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise Unsendable('header "relay.at" must be a number of seconds since 1970')
    return at if at * 1_000_000 > claimed_us else None


class JobWriter:
    """Writes the jobs of one batch."""

    def __init__(self, claimed_us: int, retry: bool | int, *, active_job: bool) -> None:
        self._retry = retry
        self._active_job = active_job
        self._enqueued = b',"enqueued_at":' + seconds(claimed_us)
        self._enqueued_text = rfc3339(claimed_us).encode()
        self._starts: dict[tuple[str, str], bytes] = {}

    def write(self, message: Message, queue: str, asked: Mapping[str, Any], *, scheduled: bool) -> bytes:
        """A job's text. `asked`: its `attributes`.

        Raises:
            Unsendable: the message is not JSON.
        """
        start = None if asked else self._starts.get((message.kind, queue))
        if start is None:
            start = self._start(message.kind, queue, asked)
            if not asked:
                self._starts[message.kind, queue] = start
        arguments = _arguments(message)
        if self._active_job:
            arguments = b"[%b]" % self._job_data(message, queue, arguments)
        jid = message.message_id.hex[:24].encode()
        return _JOB % (start, jid, seconds(message.created_us), b"" if scheduled else self._enqueued, arguments)

    def _start(self, kind: str, queue: str, asked: Mapping[str, Any]) -> bytes:
        """What comes before the values that differ from message to message."""
        names = {"class": ACTIVE_JOB_CLASS, "wrapped": kind} if self._active_job else {"class": kind}
        return digits_kept({**names, "retry": self._retry, **asked, "queue": queue})[:-1].encode()

    def _job_data(self, message: Message, queue: str, arguments: bytes) -> bytes:
        """As `ActiveJob::Core#serialize` writes it; locale and time zone are the worker's own defaults."""
        job_class, job_id = json_text(message.kind).encode(), str(message.message_id).encode()
        return _JOB_DATA % (job_class, job_id, json_text(queue).encode(), arguments, self._enqueued_text)


def _arguments(message: Message) -> bytes:
    payload = message.payload
    if payload is None:
        raise Unsendable("a body of bytes: Sidekiq takes JSON only")
    if payload.startswith(b"[") or payload.lstrip().startswith(b"["):
        return payload
    return b"[%b]" % payload
