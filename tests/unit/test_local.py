"""Local handlers: which one is called, how it is imported, and what it gets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from relay.config.settings import load as load_settings
from relay.errors import ConfigError
from sinks import base
from sinks.base import SinkConfig, SinkUnavailable
from sinks.local import Message, Reject, Retry
from sinks.local.handlers import Kinds, NotImportable, OnError, call, load
from sinks.local.lanes import NOT_SENT, Lanes
from sinks.local.options import LocalOptions
from sinks.local.sink import LocalSink
from sinks.testing import batch, message

SILENT = OnError(lambda kind, text: None, wanted=False)


def no_loop(work: Coroutine[Any, Any, Any]) -> None:
    work.close()
    raise AssertionError("nothing is awaited here")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("SendReceipt", "a:exact"),
        ("SendReminder", "a:send"),
        ("Send", "a:send"),
        ("order.v1", "a:version"),
        ("orderxv1", None),
        ("order.v12", None),
        ("Other", None),
        ("Send\nTwo lines", "a:send"),
    ],
)
def test_handler_of_a_kind(kind: str, expected: str | None) -> None:
    kinds = Kinds({"Send*": "a:send", "SendR*": "a:later", "SendReceipt": "a:exact", "order.v?": "a:version"})
    assert kinds.handler(kind) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:f", "handler no_such_module:f: ModuleNotFoundError: No module named 'no_such_module'"),
        ("tests.local_handlers:nowhere", "handler tests.local_handlers:nowhere: AttributeError: "),
        ("tests.local_handlers:not_a_function", "expected a function, got int"),
        ("raising:f", "handler raising:f: RuntimeError at raising.py:1"),
        ("leaving:f", "handler leaving:f: SystemExit at leaving.py:1"),
    ],
)
def test_what_cannot_be_imported_is_named(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising.py").write_text("raise RuntimeError('secret')")
    (tmp_path / "leaving.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(NotImportable) as caught:
        load([name])
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_handlers_are_imported_when_the_sink_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sink = LocalSink(SinkConfig("jobs", LocalOptions(handlers={"*": "appears_later:handler"})))
    sink.close()
    with pytest.raises(SinkUnavailable, match="appears_later"):
        sink.open()
    (tmp_path / "appears_later.py").write_text("def handler(message): pass")
    sink.open()
    assert sink.send(batch([message(1)])) == [base.DELIVERED]
    sink.close()


def test_stopping_begins_nothing_more() -> None:
    sink = LocalSink(SinkConfig("jobs", LocalOptions(handlers={"*": "builtins:repr"})))
    sink.open()
    outcomes = sink.send(batch([message(1), message(2)], stopping=lambda: True))
    assert outcomes == [base.Hold("not started: the relay is stopping")] * 2
    sink.close()


@pytest.mark.parametrize(
    ("payload", "args"),
    [(b'[1, "a"]', [1, "a"]), (b'{"a": 1}', [{"a": 1}]), (b"null", [None]), (b"[]", [])],
)
def test_arguments(payload: bytes, args: list[Any]) -> None:
    assert Message(message(1, payload=payload)).args == args


def test_message_is_parsed_when_asked() -> None:
    broken = Message(message(1, payload=b"{", key="k", headers={"a": 1}, attempts=3))
    assert (broken.id, broken.kind, broken.key, broken.headers, broken.attempts) == (1, "SendReceipt", "k", {"a": 1}, 3)
    assert broken.created_at.isoformat() == "2025-11-29T19:36:40.123457+00:00"
    assert repr(broken) == f"<Message id=1 kind='SendReceipt' message_id={broken.message_id}>"
    with pytest.raises(ValueError, match="Expecting"):
        _ = broken.payload
    binary = Message(message(1, payload=None, body=b"\xff"))
    assert (binary.body, binary.data) == (b"\xff", b"\xff")
    with pytest.raises(ValueError, match="has a body"):
        _ = binary.args


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Retry("busy", after=30), base.Retry("busy", 30.0)),
        (Retry("busy", timedelta(minutes=1)), base.Retry("busy", 60.0)),
        (Reject("no such customer"), base.Reject("no such customer")),
    ],
    ids=["seconds", "timedelta", "reject"],
)
def test_what_a_handler_raises_is_an_outcome(error: Exception, outcome: base.Outcome) -> None:
    def handler(message: Message) -> None:
        raise error

    assert call(handler, message(1), no_loop, SILENT) == outcome


def test_reason_says_where_but_not_what() -> None:
    def handler(message: Message) -> None:
        int("secret")

    outcome = call(handler, message(1), no_loop, SILENT)
    assert isinstance(outcome, base.Retry)
    assert outcome.reason.startswith("ValueError at ")
    assert "test_local.py:" in outcome.reason
    assert "secret" not in outcome.reason


@pytest.mark.parametrize("ordered", [True, False])
def test_lanes(ordered: bool) -> None:
    lanes = Lanes([message(1, key="a"), message(2, key="a"), message(3), message(4, key="a")], ordered=ordered)
    taken = [lanes.take() for _ in range(5)]
    assert taken == ([0, 2, None, None, None] if ordered else [0, 1, 2, 3, None])
    if ordered:
        lanes.settle(0, base.DELIVERED)
        assert lanes.take() == 1
        lanes.settle(1, base.Retry("no"))
        assert lanes.take() is None
        rest = base.Hold("rest")
        assert lanes.outcomes(rest) == [base.DELIVERED, base.Retry("no"), rest, NOT_SENT]


@pytest.mark.parametrize(
    ("written", "seconds"), [("500ms", 0.5), ("10s", 10.0), ("1.5h", 5400.0), ("2d", 172_800.0), (3, 3.0)]
)
def test_timeout(written: object, seconds: float) -> None:
    assert LocalOptions.model_validate({"handlers": {"*": "a:b"}, "timeout": written}).timeout == seconds


@pytest.mark.parametrize("written", ["", "ten", "0s", "-1s", "5 weeks", "31d", True, None, float("nan")])
def test_timeout_that_is_none(written: object) -> None:
    with pytest.raises(ValidationError, match="a duration above zero"):
        LocalOptions.model_validate({"handlers": {"*": "a:b"}, "timeout": written})


def configured(text: str, tmp_path: Path) -> Any:
    file = tmp_path / "relay.toml"
    file.write_text(f'[database]\nurl = "postgresql://localhost/app"\n[sinks.jobs]\ntype = "local"\n{text}')
    return load_settings(file, {}).sinks["jobs"]


def test_a_claim_takes_what_can_run_at_once(tmp_path: Path) -> None:
    handlers = 'handlers = { "*" = "a:b" }\n'
    assert configured(handlers, tmp_path).batch_messages == 1
    assert configured(handlers + "concurrency = 20", tmp_path).batch_messages == 20
    assert configured(handlers + "concurrency = 20\nbatch_messages = 100", tmp_path).batch_messages == 100


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'sinks.jobs.handlers: expected a table such as { "Kind" = "module:name" }'),
        ("handlers = {}", "sinks.jobs.handlers: "),
        ('handlers = { "A" = "no function" }', 'expected "module:function" for each kind'),
        ('handlers = { "A" = "a:b" }\nexecutor = "fiber"', "sinks.jobs.executor: expected 'thread' or 'process'"),
        ('handlers = { "A" = "a:b" }\nclient = { x = 1 }', "sinks.jobs.client: expected nothing"),
        ('handlers = { "A" = "a:b" }\nconcurency = 2', '(the nearest is "concurrency")'),
    ],
)
def test_configuration_problems(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(text, tmp_path)
    assert problem in str(caught.value)


def test_a_child_whose_relay_is_gone_ends_without_a_word(tmp_path: Path) -> None:
    """Its standard error is the relay's log. Whether it finds out by listening or by answering."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-P", "-m", "sinks.local.child", str(theirs.fileno())]
        child = subprocess.Popen(argv, pass_fds=[theirs.fileno()], start_new_session=True, stderr=subprocess.PIPE)
        theirs.close()
        ours.shutdown(socket.SHUT_RD)  # from now on nobody hears it, and it still hears us
        connection = Connection(os.dup(ours.fileno()))
        connection.send((["json:dumps"], False))
        _, said = child.communicate(timeout=60)
        connection.close()
    assert (child.returncode, said) == (-signal.SIGKILL, b"")
