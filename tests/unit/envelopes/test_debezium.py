"""Messages as Debezium's event router sends them; that it does is proved beside the router itself, with a server."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.base import Message
from sinks.envelopes.debezium import Debezium
from sinks.envelopes.envelope import Enveloped
from sinks.template import Template
from sinks.testing import message

ID = UUID("0198c0de-0000-4000-8000-000000000001")
ONE = message(1, message_id=ID, kind="OrderCreated", key="42", payload=b'{"total": 9.90}', headers={"n": 3})
VALUE_SCHEMA = '{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}'


def wrap(one: Message, key: Any = "string", value: Any = "string", **headers: str) -> Enveloped:
    templates = {name: Template(text) for name, text in headers.items()}
    return Debezium("orders", key_converter=key, value_converter=value, headers=templates).wrap(one)


def test_by_default() -> None:
    assert wrap(ONE) == Enveloped(b"42", b'{"total": 9.90}', [("id", str(ID))])
    assert wrap(ONE._replace(key=None)).key is None


def test_json_converter_quotes() -> None:
    wrapped = wrap(ONE, "json", "json")
    assert (wrapped.key, wrapped.value) == (b'"42"', rb'"{\"total\": 9.90}"')


def test_json_converter_with_schemas() -> None:
    wrapped = wrap(ONE, "json-schema", "json-schema")
    assert wrapped.key == b'{"schema":{"type":"string","optional":false},"payload":"42"}'
    assert wrapped.value == rb'{"schema":%b,"payload":"{\"total\": 9.90}"}' % VALUE_SCHEMA.encode()


def test_further_headers() -> None:
    wrapped = wrap(ONE, eventType="{kind}", n="{header.n}", missing="{header.missing}")
    assert wrapped.headers == [("id", str(ID)), ("eventType", "OrderCreated"), ("n", "3"), ("missing", None)]


@pytest.mark.parametrize(
    ("converter", "value"),
    [
        ("string", None),
        ("json", b"null"),
        ("json-schema", b'{"schema":%b,"payload":null}' % VALUE_SCHEMA.encode()),
    ],
)
def test_an_empty_body_stands_for_null(converter: str, value: bytes | None) -> None:
    assert wrap(ONE._replace(payload=None, body=b""), value=converter).value == value


def test_bytes() -> None:
    one = ONE._replace(payload=None, body=b"\xff\x00")
    assert wrap(one).value == b"\xff\x00"
    assert wrap(one, value="json").value == b'"/wA="'
    assert wrap(one, value="json-schema").value == b'{"schema":{"type":"bytes","optional":true},"payload":"/wA="}'


@pytest.mark.parametrize(
    ("key", "quoted"),
    [
        ("\x00\x01\x0f\x1f", rb'"\u0000\u0001\u000F\u001F"'),
        ("\b\t\n\f\r", rb'"\b\t\n\f\r"'),
        ("\\u001f", rb'"\\u001f"'),
        ("\\\x1f", rb'"\\\u001F"'),
        ('"/\x7f\u2028é', '"\\"/\x7f\u2028é"'.encode()),
        ("😀\U00010000\U0010ffff", rb'"\uD83D\uDE00\uD800\uDC00\uDBFF\uDFFF"'),
    ],
)
def test_texts_are_escaped_as_jackson_does(key: str, quoted: bytes) -> None:
    assert wrap(ONE._replace(key=key), "json").key == quoted


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_quoted_is_the_same_text(key: str) -> None:
    quoted = wrap(ONE._replace(key=key), "json").key
    assert json.loads(quoted or b"") == key
