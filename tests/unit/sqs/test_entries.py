"""What a message looks like as an SQS entry, within AWS's limits."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.base import Message
from sinks.sqs.entries import Entry, EntryMaker, NotYet, Unfit, legal_group
from sinks.template import Template
from sinks.testing import CLAIMED_US, message
from tests.servers.sqs_answers import Call
from tests.servers.sqs_rules import refusal, size

ID = UUID("0198c0de-0000-4000-8000-000000000001")


def maker(
    queue: str = "orders", group: str | None = None, *, ordered: bool = False, schedule: bool = False
) -> EntryMaker:
    return EntryMaker("a-sink", Template(queue), Template(group) if group else None, ordered=ordered, schedule=schedule)


def entry(one: Message, queue: str = "orders", group: str | None = None, **changes: Any) -> Entry:
    return maker(queue, group, **changes).make(one, 0, CLAIMED_US)


def attributes(one: Message) -> dict[str, str]:
    found = entry(one).fields["MessageAttributes"]
    assert {value["DataType"] for value in found.values()} == {"String"}
    return {name: value["StringValue"] for name, value in found.items()}


def taken_by_aws(made: Entry) -> bool:
    """Whether the stub that is as strict as AWS would take it."""
    call = Call("SendMessageBatch", {"QueueUrl": made.queue, "Entries": [{"Id": "0", **made.fields}]}, {}, 0)
    return refusal(call, 2**20) is None


def test_wire_format() -> None:
    one = message(
        1, message_id=ID, kind="order.created", key="42", payload=b'{"total": 9.90}', headers={"a": "x", "n": 1.5}
    )
    assert entry(one).fields == {
        "MessageBody": '{"total": 9.90}',
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": text}
            for name, text in {
                "message_id": str(ID),
                "kind": "order.created",
                "created_at": "2025-11-29T19:36:40.123457Z",
                "a": "x",
                "n": "1.5",
            }.items()
        },
    }


def test_fifo_queue_gets_deduplication_id_and_group() -> None:
    fields = entry(message(1, message_id=ID, key="42"), "orders.fifo").fields
    assert fields["MessageDeduplicationId"] == str(ID)
    assert fields["MessageGroupId"] == "42"


def test_message_without_key_is_a_group_of_its_own() -> None:
    assert entry(message(1, message_id=ID), "orders.fifo").fields["MessageGroupId"] == str(ID)


def test_standard_queue_has_groups_only_when_asked() -> None:
    assert "MessageGroupId" not in entry(message(1, key="42")).fields
    assert entry(message(1, key="42"), group="tenant-{key}").fields["MessageGroupId"] == "tenant-42"
    assert "MessageGroupId" not in entry(message(1), group="{key}").fields
    assert "MessageDeduplicationId" not in entry(message(1, key="42"), group="{key}").fields


@pytest.mark.parametrize("key", ["k" * 129, "zoë 😀 x", "with space", "tab\t", "\x00"])
def test_illegal_key_becomes_a_stable_hash(key: str) -> None:
    group = entry(message(1, key=key), "orders.fifo").fields["MessageGroupId"]
    assert group == entry(message(2, key=key), "orders.fifo").fields["MessageGroupId"] == legal_group(key)
    assert group.startswith("sha256-")
    assert len(group) == 71
    assert group != legal_group(key + "x")


@pytest.mark.parametrize("key", ["k" * 128, "a/b:c", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
def test_legal_key_is_the_group(key: str) -> None:
    assert legal_group(key) == key


@pytest.mark.parametrize("text", ['["\x01"]', '["\uffff"]', '["\ufffe"]'])
def test_payload_with_a_character_that_aws_refuses_travels_in_base64(text: str) -> None:
    made = entry(message(1, payload=text.encode()))
    assert base64.b64decode(made.fields["MessageBody"]).decode() == text
    assert made.fields["MessageAttributes"]["content-encoding"]["StringValue"] == "base64"
    assert taken_by_aws(made)


@pytest.mark.parametrize("body", [b"\xff\xfe\x00", b"plain text", b'{"json": true}', bytes(range(256))])
def test_body_travels_in_base64(body: bytes) -> None:
    made = entry(message(1, payload=None, body=body))
    assert base64.b64decode(made.fields["MessageBody"], validate=True) == body
    assert made.fields["MessageAttributes"]["content-encoding"]["StringValue"] == "base64"


def test_payload_that_is_no_utf_8_travels_in_base64() -> None:
    assert base64.b64decode(entry(message(1, payload=b"\xff")).fields["MessageBody"]) == b"\xff"


def test_empty_body_is_unfit() -> None:
    with pytest.raises(Unfit, match="empty"):
        entry(message(1, payload=None, body=b""))


def test_kind_with_an_illegal_character_is_unfit_and_named() -> None:
    with pytest.raises(Unfit, match=r"kind: .*U\+0001"):
        entry(message(1, kind="a\x01"))


def test_seven_headers_are_seven_attributes() -> None:
    headers = {f"h{number}": str(number) for number in range(7)}
    assert attributes(message(1, headers=headers)).items() >= headers.items()
    assert "headers" not in attributes(message(1, headers=headers))


def test_headers_beyond_ten_attributes_are_packed() -> None:
    headers = {f"h{number:02}": number for number in range(11)}
    found = attributes(message(1, headers=headers))
    packed = json.loads(found["headers"])
    assert len(found) == 10
    assert len(packed) == 5
    assert {name: json.loads(found[name]) for name in headers if name in found} | packed == headers


def test_body_in_base64_leaves_room_for_six_headers() -> None:
    headers = {f"h{number}": "x" for number in range(7)}
    found = attributes(message(1, payload=None, body=b"x", headers=headers))
    assert len(found) == 10
    assert json.loads(found["headers"]) == {"h5": "x", "h6": "x"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS.trace", "x"),
        ("amazon.x", "x"),
        (".x", "x"),
        ("x.", "x"),
        ("a..b", "x"),
        ("with space", "x"),
        ("é", "x"),
        ("", "x"),
        ("n" * 257, "x"),
        ("empty", ""),
        ("control", "\x01\uffff"),
        ("kind", "mine"),
        ("message_id", "mine"),
        ("created_at", "mine"),
        ("headers", {"mine": True}),
        ("content-encoding", "gzip"),
    ],
)
def test_header_that_can_be_no_attribute_is_packed_unchanged(name: str, value: Any) -> None:
    one = message(1, headers={name: value, "good": "x"})
    found = attributes(one)
    assert json.loads(found["headers"]) == {name: value}
    assert found["good"] == "x"
    assert found["kind"] == one.kind
    assert taken_by_aws(entry(one))


def test_header_of_nan_is_unfit() -> None:
    with pytest.raises(Unfit, match="NaN"):
        entry(message(1, headers={"x": float("nan")}))


def test_size_is_bytes_of_body_and_attributes() -> None:
    one = message(1, payload='["é😀"]'.encode(), kind="é", headers={"h": "ü"})
    made = entry(one)
    assert made.size == size(made.fields)
    assert made.size - len(one.data) == sum(
        len(text.encode()) for name, value in attributes(one).items() for text in (name, "String", value)
    )


@pytest.mark.parametrize("name", ["a/b", "", "x" * 81, "orders.fifo.fifo", "é", "ftp://x/1/q", "https://host"])
def test_queue_that_cannot_be_is_unfit(name: str) -> None:
    with pytest.raises(Unfit, match="queue: "):
        entry(message(1, headers={"queue": name}), "{header.queue}")


def test_queue_template_without_its_header_is_unfit() -> None:
    with pytest.raises(Unfit, match='header "queue" is missing'):
        entry(message(1), "{header.queue}")


@pytest.mark.parametrize("name", ["orders", "x" * 75 + ".fifo", "https://sqs.eu-central-1.amazonaws.com/1/orders"])
def test_queue_by_name_or_url(name: str) -> None:
    assert entry(message(1), name).queue == name


def at(seconds: float) -> Message:
    return message(1, headers={"relay.at": CLAIMED_US / 1e6 + seconds})


def test_short_schedule_becomes_a_delay_and_is_no_attribute() -> None:
    fields = entry(at(59.5), schedule=True).fields
    assert fields["DelaySeconds"] == 60
    assert "relay.at" not in fields["MessageAttributes"]
    assert entry(at(900), schedule=True).fields["DelaySeconds"] == 900


@pytest.mark.parametrize("seconds", [0, -5])
def test_schedule_in_the_past_is_no_delay(seconds: float) -> None:
    assert "DelaySeconds" not in entry(at(seconds), schedule=True).fields


def test_schedule_that_sqs_cannot_hold_waits_here() -> None:
    with pytest.raises(NotYet) as standard:
        entry(at(1000), schedule=True)
    assert 99 <= standard.value.outcome.after <= 101
    with pytest.raises(NotYet) as fifo:
        entry(at(60), "orders.fifo", schedule=True)
    assert 59 <= fifo.value.outcome.after <= 61


def test_schedule_that_is_no_number_is_unfit() -> None:
    with pytest.raises(Unfit, match=r"relay\.at"):
        entry(message(1, headers={"relay.at": "soon"}), schedule=True)


def test_schedule_of_a_sink_that_does_not_ask_for_it_is_a_header() -> None:
    fields = entry(at(60)).fields
    assert "DelaySeconds" not in fields
    assert "relay.at" in fields["MessageAttributes"]


def test_lanes() -> None:
    assert entry(message(1, key="k"), "orders").lane == 0
    assert entry(message(1, key="k"), "orders", ordered=True).lane == "k"
    assert entry(message(1), "orders.fifo", ordered=True).lane == 0
    same = [entry(message(n, key=f"k{n}"), "orders.fifo", "one-group").lane for n in range(2)]
    assert same[0] == same[1]
    assert entry(message(1, key="k"), "other.fifo", "one-group").lane != same[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    payload=st.binary(min_size=1),
    is_body=st.booleans(),
    key=st.none() | st.text(min_size=1),
    headers=st.dictionaries(st.text(), json_values, max_size=15),
    queue=st.sampled_from(["orders", "orders.fifo"]),
    group=st.sampled_from([None, "{key}", "{kind}"]),
)
def test_whatever_the_message_aws_takes_it_and_nothing_is_lost(
    payload: bytes, is_body: bool, key: str | None, headers: dict[str, Any], queue: str, group: str | None
) -> None:
    one = message(1, key=key, headers=headers, payload=None if is_body else payload, body=payload if is_body else None)
    made = entry(one, queue, group)
    assert taken_by_aws(made)
    assert made.size == size(made.fields)
    found = {name: value["StringValue"] for name, value in made.fields["MessageAttributes"].items()}
    body = made.fields["MessageBody"]
    assert (base64.b64decode(body) if "content-encoding" in found else body.encode()) == payload
    packed = json.loads(found.get("headers", "{}"))
    for name, value in headers.items():
        if name in packed:
            assert packed[name] == value
        else:
            assert found[name] == (
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            )
