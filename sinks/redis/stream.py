"""Redis Streams: one entry a message.

| field | value |
| --- | --- |
| `message_id`, `kind` | as text |
| `key` | absent where the message has none |
| `created_at` | RFC 3339, UTC |
| `payload` | the payload or the body, byte for byte |
| `header:NAME` | a header: a string as it is, anything else as JSON text |

With an envelope, payload and headers are the envelope's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import Field, field_validator

from sinks.base import BadOption, Batch, Message, SinkConfig
from sinks.envelopes.cloudevents import StructuredOptions, structured
from sinks.redis.connection import Argument, bulk
from sinks.redis.fence import Fence, RedisOptions, RedisSink
from sinks.redis.plan import AT_ONCE, Command, Push, Unsendable, check_size
from sinks.redis.slots import SlotFence
from sinks.redis.url import Place
from sinks.template import Template
from sinks.wire import header_text, rfc3339

_MESSAGE_ID, _KIND, _KEY, _CREATED_AT, _PAYLOAD = map(bulk, ("message_id", "kind", "key", "created_at", "payload"))


_RESERVED: Final = frozenset({"queues", "schedule", "retry", "dead", "processes"})
_RESERVED_PREFIXES: Final = ("queue:", "stat:", "outbox-relay:")
NAMES: Final = (
    "a stream's name without control characters, which is not Sidekiq's own (queues, queue:…, schedule, retry, dead, "
    "processes, stat:…) nor outbox-relay:…"
)


def is_stream_name(name: str) -> bool:
    """Whether a stream may be called so: it must not take the place of another program's keys, or of our own."""
    return name not in _RESERVED and not name.startswith(_RESERVED_PREFIXES) and name.isprintable()


class RedisStreamOptions(RedisOptions, StructuredOptions):
    """Configuration keys of `type = "redis-stream"`."""

    stream: Template = Template("{sink}")
    """The stream's key."""
    maxlen: int | None = Field(default=None, ge=1)
    """About how many entries a stream keeps (`MAXLEN ~`), read or not. None: all of them."""

    @field_validator("stream")
    @classmethod
    def _possible(cls, stream: Template) -> Template:
        # Of a template only its beginning and its control characters are known before there is a message.
        known = stream.constant or stream.text
        if not is_stream_name(known):
            raise ValueError(NAMES)
        return stream


class RedisStreamSink(RedisSink):
    """Adds messages to streams."""

    Options = RedisStreamOptions

    def __init__(self, config: SinkConfig) -> None:
        super().__init__(config)
        if config.options.stream.text == "{sink}" and not is_stream_name(config.name):
            raise BadOption("stream", f"{NAMES}; here the sink's name is the stream's")
        self._envelope = structured(config)

    def fingerprint(self) -> str:
        return f"{self.place} stream {self.config.options.stream}"

    @property
    def sole_destination(self) -> str | None:
        stream: Template = self.config.options.stream
        return self.config.name if stream.text == "{sink}" else stream.constant

    def destination(self, message: Message) -> str | None:
        return self._stream_of(message)

    def cluster_fence(self, place: Place) -> Fence:
        return SlotFence(place, self.config, self._stream_of)

    def _stream_of(self, message: Message) -> str:
        options: RedisStreamOptions = self.config.options
        return options.stream.render(message, self.config.name)

    def pusher(self, batch: Batch) -> Callable[[Message], Push]:
        options: RedisStreamOptions = self.config.options
        largest = self.fence.largest_argument
        envelope = self._envelope
        commands: dict[str, Command] = {}

        def push(message: Message) -> Push:
            stream = self._stream_of(message)
            if envelope is not None:
                message = envelope.wrap(message).as_message(message)
            command = commands.get(stream)
            if command is None:
                if not is_stream_name(stream):
                    raise Unsendable(f'"{options.stream}" gives a name that is refused; expected {NAMES}')
                command = commands[stream] = _xadd(stream, options.maxlen)
            headers = [header_text(value).encode() for value in message.headers.values()]
            for part in (message.data, *headers):
                check_size(part, largest)
            return command, *_entry(message, headers)

        return push


def _xadd(stream: str, maxlen: int | None) -> Command:
    trim: list[Argument] = [] if maxlen is None else ["MAXLEN", "~", maxlen]
    return Command(stream, "XADD", stream, *trim, "*")


def _entry(message: Message, headers: list[bytes]) -> tuple[bytes, int]:
    """The packed fields of an entry, names and values, and how many arguments they are."""
    if len(headers) > AT_ONCE:
        raise Unsendable(f"{len(headers)} headers; an entry takes at most {AT_ONCE}")
    packed = [
        *(_MESSAGE_ID, bulk(str(message.message_id))),
        *(_KIND, bulk(message.kind)),
        *(_CREATED_AT, bulk(rfc3339(message.created_us))),
        *(_PAYLOAD, bulk(message.data)),
    ]
    if message.key is not None:
        packed += [_KEY, bulk(message.key)]
    for name, value in zip(message.headers, headers, strict=True):
        packed += [bulk(f"header:{name}"), bulk(value)]
    return b"".join(packed), len(packed)
