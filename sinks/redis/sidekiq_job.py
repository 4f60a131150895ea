"""The JSON text of a Sidekiq job, as Sidekiq's own client writes it (`lib/sidekiq/client.rb`, `job_util.rb`).

Times are seconds with a decimal point: versions up to 7 want float seconds, and version 8, which writes whole
milliseconds, still reads a float as seconds. Arguments are spliced in as text, never parsed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from sinks.base import Message
from sinks.redis.plan import Unsendable
from sinks.wire import digits_kept, json_text, rfc3339

ACTIVE_JOB_CLASS: Final = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
"""Rails' own name, which Sidekiq 8's adapter keeps as an alias of its `Sidekiq::ActiveJob::Wrapper`."""

OURS: Final = frozenset({"class", "wrapped", "args", "jid", "created_at", "enqueued_at", "at"})
"""Attributes that header `sidekiq` cannot change."""

FAILURES: Final = frozenset(
    {"retry_count", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace", "discarded_at"}
)
"""Attributes of a job that failed before; of another type than Sidekiq's they break its retry and the Web UI."""

QUEUE_NAMES: Final = (
    "a queue's name of ASCII letters, digits and _ : . - only (Sidekiq's Web UI has no page for others)"
)
_QUEUE_NAME: Final = re.compile(r"[a-zA-Z_:.\-0-9]+")
_LOG_LEVELS: Final = frozenset({"debug", "info", "warn", "error", "fatal"})

DEEPEST: Final = 100
"""Levels of arrays and objects in the JSON that Ruby's library reads and writes (`max_nesting`)."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NUMBER: Final = re.compile(rb"(?<!\d)\d++(?:\.\d++(?:[eE][+-]?\d++)?|[eE][+-]?\d++)")
"""One that becomes a Float. (Each run of digits is looked at once, however long it is.)"""
_LARGE: Final = re.compile(rb"\d[eE]\+?\d{3}|\d{300}")

_JOB: Final = b'%b,"jid":"%b","created_at":%b%b,"args":%b}'
_JOB_DATA: Final = (
    b'{"job_class":%b,"job_id":"%b","provider_job_id":null,"queue_name":%b,"priority":null,"arguments":%b,'
    b'"executions":0,"exception_executions":{},"enqueued_at":"%b"}'
)


def seconds(microseconds: int) -> bytes:
    """Microseconds as seconds, always with a decimal point."""
    return b"%d.%06d" % divmod(microseconds, 1_000_000)


def is_queue_name(name: str) -> bool:
    """Whether Sidekiq's Web UI has a page for a queue of this name."""
    return bool(_QUEUE_NAME.fullmatch(name))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_queue(value: Any) -> bool:
    return isinstance(value, str) and is_queue_name(value)


RULES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "queue": (_is_queue, QUEUE_NAMES),
    "retry_queue": (_is_queue, QUEUE_NAMES),
    "retry": (
        lambda value: isinstance(value, bool) or (_is_int(value) and value >= 0),
        "true, false or a whole number",
    ),
    "retry_for": (lambda value: _is_number(value) and 0 <= value <= 1_000_000_000, "seconds, up to 1000000000"),
    "tags": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "an array of texts"),
    "log_level": (
        lambda value: value in _LOG_LEVELS if isinstance(value, str) else _is_int(value) and 0 <= value <= 4,
        "debug, info, warn, error, fatal, or a number from 0 to 4",
    ),
    "backtrace": (lambda value: isinstance(value, bool) or _is_int(value), "true, false or a number of lines"),
    "dead": (lambda value: isinstance(value, bool), "true or false"),
    "display_class": (_is_text, "a text"),
    "locale": (_is_text, "a text"),
    "bid": (_is_text, "a text"),
    "cattr": (lambda value: isinstance(value, (dict, list)), "an object or an array"),
    "profile": (_is_text, "a text"),
}
"""What Sidekiq's client and server take, by attribute: what the client would raise `ArgumentError` for, and what would
break the job's retry, its log or the pages of the Web UI. null is as if it were not there. Others are not looked at."""


def attributes(headers: Mapping[str, Any]) -> dict[str, Any]:
    """What header `sidekiq` asks for: `retry`, `queue`, `tags`, …

    Raises:
        Unsendable: it is not an object, or Sidekiq would not take an attribute.
    """
    asked = headers.get("sidekiq")
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        raise Unsendable('header "sidekiq" must be an object of job attributes')
    for name, value in asked.items():
        if name in RULES and value is not None and not RULES[name][0](value):
            raise Unsendable(f'"{name}" in header "sidekiq": expected {RULES[name][1]}')
        if name in FAILURES:
            raise Unsendable(
                f'"{name}" in header "sidekiq": expected nothing, as Sidekiq itself writes it at a failure'
            )
    found = {name: value for name, value in asked.items() if name not in OURS}
    if _is_number(found.get("retry_for")):
        found["retry_for"] = int(found["retry_for"])  # as its client does
    return found


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
        _check_readable(arguments, DEEPEST - (3 if self._active_job else 1))
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


def _check_readable(text: bytes, deepest: int) -> None:
    """
    Raises:
        Unsendable: Ruby's JSON library would not write these arguments: its client refuses them, and a worker that
            reads them all the same could not write them back for a retry.
    """
    deep = text.count(b"[") + text.count(b"{") > deepest
    if not deep and not _LARGE.search(text):
        return
    bare = _STRING.sub(b"", text)
    depth = most = 0
    for bracket in bare.translate(None, _NO_BRACKETS) if deep else b"":
        depth += 1 if bracket in b"[{" else -1
        most = max(most, depth)
    if most > deepest:
        raise Unsendable(f"arguments {most} levels deep; a job holds at most {deepest}, as Ruby reads JSON")
    if any(math.isinf(float(number)) for number in _NUMBER.findall(bare)):
        raise Unsendable("a number in the arguments is larger than any Float of Ruby")


def _arguments(message: Message) -> bytes:
    payload = message.payload
    if payload is None:
        raise Unsendable("a body of bytes: Sidekiq takes JSON only")
    if payload.startswith(b"[") or payload.lstrip().startswith(b"["):
        return payload
    return b"[%b]" % payload
