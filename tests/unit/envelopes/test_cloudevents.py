"""Messages as CloudEvents, read by the specification's own Python SDK."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, from_structured_event
from hypothesis import given
from hypothesis import strategies as st

from sinks.base import Message
from sinks.envelopes.cloudevents import CloudEvents
from sinks.envelopes.envelope import BadEnvelope, Enveloped
from sinks.testing import PAYLOADS, message

ID = UUID("0198c0de-0000-4000-8000-000000000001")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ONE = message(1, message_id=ID, kind="order.created", key="42", payload=b'{"total": 9.90}')

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
contents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
names = (
    texts
    | st.text("abcde0189", max_size=25)
    | st.sampled_from(["ce_id", "content-type", "data", "id", "subject", "time"])
)


def wrap(one: Message, source: str | None = None, *, structured: bool = False) -> Enveloped:
    return CloudEvents("orders", source, structured=structured).wrap(one)


def read(wrapped: Enveloped, *, structured: bool = False) -> BaseCloudEvent:
    """What a consumer with the SDK gets. It wants every header to have a value, and its name once."""
    headers = {name: (text or "").encode() for name, text in wrapped.headers}
    assert len(headers) == len(wrapped.headers)
    record = KafkaMessage(headers, wrapped.key, wrapped.value or b"")
    return from_structured_event(record) if structured else from_binary_event(record)


def test_binary_mode() -> None:
    assert wrap(ONE) == Enveloped(
        b"42",
        b'{"total": 9.90}',
        [
            ("content-type", "application/json"),
            ("ce_specversion", "1.0"),
            ("ce_id", str(ID)),
            ("ce_source", "urn:outbox-relay:orders"),
            ("ce_type", "order.created"),
            ("ce_time", "2025-11-29T19:36:40.123457Z"),
            ("ce_partitionkey", "42"),
        ],
    )


def test_structured_mode() -> None:
    wrapped = wrap(ONE, "https://example.com/shop", structured=True)
    assert wrapped == Enveloped(
        b"42",
        b'{"specversion":"1.0","id":"0198c0de-0000-4000-8000-000000000001","source":"https://example.com/shop",'
        b'"type":"order.created","time":"2025-11-29T19:36:40.123457Z","datacontenttype":"application/json",'
        b'"partitionkey":"42","data":{"total": 9.90}}',
        [("content-type", "application/cloudevents+json; charset=UTF-8")],
    )


@pytest.mark.parametrize("structured", [False, True])
def test_the_sdk_reads_it(structured: bool) -> None:
    one = ONE._replace(headers={"traceparent": TRACEPARENT, "subject": "é 😀", "tenant": "acme"})
    event = read(wrap(one, "/shop", structured=structured), structured=structured)
    assert (event.get_id(), event.get_source(), event.get_type()) == (str(ID), "/shop", "order.created")
    assert event.get_time() == datetime(2025, 11, 29, 19, 36, 40, 123457, UTC)
    assert event.get_datacontenttype() == "application/json"
    assert (event.get_subject(), event.get_extension("tenant")) == ("é 😀", "acme")
    assert (event.get_extension("partitionkey"), event.get_extension("traceparent")) == ("42", TRACEPARENT)
    assert event.get_data() == {"total": 9.9}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_stays_as_it_is(payload: bytes) -> None:
    assert wrap(ONE._replace(payload=payload)).value == payload
    value = wrap(ONE._replace(payload=payload), structured=True).value
    assert value is not None
    assert value.endswith(b',"data":' + payload + b"}")
    assert json.loads(value)["data"] == json.loads(payload)


def test_bytes_travel_in_base64_inside_of_json() -> None:
    one = ONE._replace(payload=None, body=b"\xff\xfe\x00")
    assert wrap(one).value == b"\xff\xfe\x00"
    assert read(wrap(one)).get_datacontenttype() == "application/octet-stream"
    event = read(wrap(one, structured=True), structured=True)
    assert (event.get_data(), event.get_datacontenttype()) == (b"\xff\xfe\x00", "application/octet-stream")


@pytest.mark.parametrize(
    ("payload", "given", "told"),
    [
        (None, "application/avro", "application/avro"),
        (None, "application/json", "application/json"),
        (None, "text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        (None, "Application/CloudEvents+json", "application/octet-stream"),
        (None, "nonsense", "application/octet-stream"),
        (None, "a/b\n", "application/octet-stream"),
        (None, 1, "application/octet-stream"),
        (b"{}", "application/vnd.acme.order+json; v=1", "application/vnd.acme.order+json; v=1"),
        (b"{}", "text/plain", "application/json"),
    ],
)
@pytest.mark.parametrize("name", ["content-type", "Content-Type"])
def test_the_content_type_is_told_by_a_header(payload: bytes | None, given: Any, told: str, name: str) -> None:
    body = None if payload else b"\x00"
    wrapped = wrap(ONE._replace(payload=payload, body=body, headers={name: given}))
    assert [text for header, text in wrapped.headers if header.lower() == "content-type"] == [told]


def test_trace_context_is_an_extension_and_a_header() -> None:
    one = ONE._replace(headers={"traceparent": TRACEPARENT, "tracestate": "rojo=1"})
    headers = dict(wrap(one).headers)
    assert (headers["ce_traceparent"], headers["traceparent"]) == (TRACEPARENT, TRACEPARENT)
    assert (headers["ce_tracestate"], headers["tracestate"]) == ("rojo=1", "rojo=1")
    assert dict(wrap(one, structured=True).headers).keys() == {"content-type", "traceparent", "tracestate"}


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("tenant", "acme", "acme"),
        ("n", 2**31 - 1, "2147483647"),
        ("n", 2**31, "2147483648"),
        ("yes", True, "true"),
        ("ratio", 1.5, "1.5"),
        ("deep", {"a": [None]}, '{"a":[null]}'),
        ("x" * 20, "", None),
        ("x" * 21, "too long a name", None),
        ("Tenant", "acme", None),
        ("x-tenant", "acme", None),
        ("nothing", None, None),
        ("newline", "a\nb", None),
        ("last", "\U0010ffff", None),
        ("subject", "", None),
        ("dataschema", "https://example.com/schema", "https://example.com/schema"),
        ("dataschema", "not a uri", None),
        ("dataschema", "/relative", None),
        ("id", "forged", None),
        ("data", "forged", None),
        ("partitionkey", "forged", None),
    ],
)
def test_a_header_is_an_attribute_or_travels_beside(name: str, content: Any, text: str | None) -> None:
    one = ONE._replace(key=None, headers={name: content})
    headers = dict(wrap(one).headers[6:])
    event = json.loads(wrap(one, structured=True).value or b"")
    if text is None:
        assert headers.keys() == {name}
        assert event.get(name) != content or content is None
    else:
        assert headers == {f"ce_{name}": text}
        assert str(event[name]).lower() == text


def test_attributes_have_types_in_json() -> None:
    one = ONE._replace(headers={"n": 3, "big": 2**31, "yes": True, "ratio": 1.5, "subject": 3, "traceparent": False})
    event = json.loads(wrap(one, structured=True).value or b"")
    assert [event[name] for name in ("n", "big", "yes", "ratio")] == [3, "2147483648", True, "1.5"]
    assert (event["subject"], event["traceparent"]) == ("3", "false")


def test_what_would_be_taken_for_a_part_of_the_event_does_not_travel_beside() -> None:
    one = ONE._replace(headers={"ce_id": "forged", "CE_x": "forged", "content-type": "forged"})
    assert wrap(one).headers == wrap(ONE).headers
    assert wrap(one, structured=True).headers == wrap(ONE, structured=True).headers


@pytest.mark.parametrize("key", ["", "a\nb", "\x7f", "\ufdd0"])
def test_a_key_that_no_attribute_can_hold_is_a_record_key_only(key: str) -> None:
    wrapped = wrap(ONE._replace(key=key))
    assert wrapped.key == key.encode()
    assert "ce_partitionkey" not in dict(wrapped.headers)


def test_a_kind_that_no_type_can_be_is_refused() -> None:
    with pytest.raises(BadEnvelope, match=r"kind: .* U\+0007"):
        wrap(ONE._replace(kind="a\x07b"))


@given(st.dictionaries(names, contents, max_size=4), st.booleans())
def test_whatever_the_headers_the_event_is_read_as_it_was_written(headers: dict[str, Any], structured: bool) -> None:
    event = read(wrap(ONE._replace(headers=headers), structured=structured), structured=structured)
    assert (event.get_id(), event.get_type()) == (str(ID), "order.created")
    assert event.get_source() == "urn:outbox-relay:orders"
    assert event.get_data() == {"total": 9.9}
