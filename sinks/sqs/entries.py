"""What one message looks like as an entry of `SendMessageBatch`, within the limits that AWS sets.

| of the message | on the wire |
| --- | --- |
| payload | the body, byte for byte |
| body, or a payload with a character that XML 1.0 lacks | the body, base64; attribute `content-encoding` = `base64` |
| message id | attribute `message_id`; FIFO: the deduplication id too |
| kind, time | attributes `kind`, `created_at` (RFC 3339) |
| headers | an attribute each; those that cannot be one, or are too many: in attribute `headers`, a JSON object |
| key | through the `group` template: the message group |

Emulators take much that AWS refuses, so the limits are kept here. What AWS does with an illegal character its
documentation has told differently over the years (refuse, or replace it in silence); here none leaves.
With an envelope, payload and headers are the envelope's.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sinks.base import Batch, Message, Outcome, Reject, Retry
from sinks.envelopes.envelope import BadEnvelope, Envelope
from sinks.sqs.attributes import ENCODING, ILLEGAL, add_headers
from sinks.sqs.names import EXPECTED, is_queue
from sinks.template import Template, TemplateError
from sinks.wire import rfc3339

LONGEST_DELAY_S: Final = 900
"""`DelaySeconds` at most; botocore's service model."""

AT_HEADER: Final = "relay.at"
"""When a message that was handed over early is due: seconds since 1970. For this sink, not for consumers."""

_GROUP_ID = re.compile(r"[!-~]{1,128}")

OWN_GROUP = Template("{key}")


class Unfit(Exception):
    """No operator could make SQS take this message. The text says why, without its data."""


class NotYet(Exception):
    """The message is due later than SQS could hold it back."""

    def __init__(self, seconds: float) -> None:
        self.outcome = Retry("scheduled: SQS holds back for 15 minutes at most, on standard queues only", seconds)
        super().__init__(self.outcome.reason)


class Entry(NamedTuple):
    """A message, ready to go."""

    position: int
    """In the batch."""
    queue: str
    """Name or URL, as the template gave it."""
    lane: str | int
    """Entries of a lane go one after another."""
    size: int
    """Bytes, as SQS counts them: body, and names, types and values of the attributes."""
    fields: dict[str, Any]
    """The entry in the API's own words, but its id."""


class EntryMaker:
    """Makes entries for one sink.

    Args:
        sink: its name.
        group: template of the message group; None: the key on FIFO queues, no groups on standard queues.
        ordered: a key's messages go one after another, whatever their queue and group.
        schedule: whether header `relay.at` becomes `DelaySeconds`.
        envelope: None: messages as they are.
    """

    def __init__(
        self,
        sink: str,
        queue: Template,
        group: Template | None,
        *,
        ordered: bool,
        schedule: bool,
        envelope: Envelope | None = None,
    ) -> None:
        self._sink = sink
        self._queue = queue
        self._group = group
        self._ordered = ordered
        self._schedule = schedule
        self._envelope = envelope

    def make(self, message: Message, position: int, claimed_us: int) -> Entry:
        """
        Args:
            claimed_us: microseconds since 1970.

        Raises:
            Unfit, BadEnvelope: it can never be sent.
            NotYet: it must not be sent yet.
        """
        queue = self.queue_of(message)
        fifo = queue.endswith(".fifo")
        content = message if self._envelope is None else self._envelope.wrap(message).as_message(message)
        body, encoded = _body(content)
        attributes, size = self._attributes(content, encoded)
        fields: dict[str, Any] = {"MessageBody": body, "MessageAttributes": attributes}
        if fifo:
            fields["MessageDeduplicationId"] = str(message.message_id)
        group = self._group_of(message, fifo)
        if group is not None:
            fields["MessageGroupId"] = group
        if self._schedule and (delay := _delay(message, claimed_us, fifo)):
            fields["DelaySeconds"] = delay
        lane: str | int = position
        if self._ordered:
            lane = position if message.key is None else message.key
        elif fifo:
            lane = f"{queue} {group}"
        return Entry(position, queue, lane, _length(body) + size, fields)

    def make_all(self, batch: Batch) -> list[Entry | Outcome]:
        """An entry for each message, or the outcome of one that is not sent."""
        made: list[Entry | Outcome] = []
        for position, message in enumerate(batch.messages):
            try:
                made.append(self.make(message, position, batch.claimed_us))
            except (Unfit, BadEnvelope) as error:
                made.append(Reject(str(error)))
            except NotYet as error:
                made.append(error.outcome)
        return made

    def queue_of(self, message: Message) -> str:
        """
        Raises:
            Unfit: the template gives no queue.
        """
        try:
            queue = self._queue.render(message, self._sink)
        except TemplateError as error:
            raise Unfit(f"queue: {error}") from None
        if not is_queue(queue):
            raise Unfit(f"queue: the template does not give {EXPECTED}")
        return queue

    def _group_of(self, message: Message, fifo: bool) -> str | None:
        if self._group is None and not fifo:
            return None
        try:
            group = (self._group or OWN_GROUP).render(message, self._sink)
        except TemplateError:
            # A message without a key waits for no other: in a group of its own it makes none wait.
            return str(message.message_id) if fifo else None
        return legal_group(group)

    def _attributes(self, message: Message, encoded: bool) -> tuple[dict[str, Any], int]:
        """The attributes and their size in bytes."""
        if found := ILLEGAL.search(message.kind):
            raise Unfit(f"kind: SQS takes no U+{ord(found[0]):04X}")
        texts = {
            "message_id": str(message.message_id),
            "kind": message.kind,
            "created_at": rfc3339(message.created_us),
        }
        if encoded:
            texts[ENCODING] = "base64"
        if message.headers:
            try:
                add_headers(texts, message.headers, skip=AT_HEADER if self._schedule else None)
            except ValueError:
                raise Unfit("headers: one holds NaN or Infinity, which no JSON reader has to take") from None
        size = sum([len(name) + 6 + _length(text) for name, text in texts.items()])
        return {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}, size


@lru_cache(maxsize=4096)
def legal_group(group: str) -> str:
    """The message group for this text: itself where AWS allows it, else `sha256-` and its SHA-256 in hex."""
    if _GROUP_ID.fullmatch(group):
        return group
    return "sha256-" + hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()


def _body(message: Message) -> tuple[str, bool]:
    """The body, and whether it is in base64."""
    if not message.data:
        raise Unfit("empty: SQS takes no message without a body")
    if message.payload is not None:
        try:
            text = message.payload.decode()
        except UnicodeDecodeError:
            pass
        else:
            if not ILLEGAL.search(text):
                return text, False
    return base64.b64encode(message.data).decode("ascii"), True


def _delay(message: Message, claimed_us: int, fifo: bool) -> int:
    """Seconds that SQS is to hold the message back, rounded up; 0: none."""
    at = message.headers.get(AT_HEADER)
    if at is None:
        return 0
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise Unfit(f'header "{AT_HEADER}" must be a number of seconds since 1970')
    delay = math.ceil(at - claimed_us / 1e6)
    if delay <= 0:
        return 0
    if fifo:
        raise NotYet(delay)
    if delay > LONGEST_DELAY_S:
        raise NotYet(delay - LONGEST_DELAY_S)
    return delay


def _length(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
