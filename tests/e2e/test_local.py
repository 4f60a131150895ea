"""Local workers as people run them: `relay run`, functions of an application, and everything that may go wrong."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.harness.outbox import Outbox
from tests.local_handlers import FOLDER, notes
from tests.servers.base import wait_until

ROOT = Path(__file__).parents[2]
WORK = {"Work": "tests.local_handlers:work", "WorkAsync": "tests.local_handlers:work_async"}
both_executors = pytest.mark.parametrize("executor", ["thread", "process"])


def configure(outbox: Outbox, handlers: dict[str, str] | None = None, **keys: Any) -> None:
    """One sink of local handlers, by default claims of one; leases of two seconds."""
    jobs = {"type": "local", "handlers": handlers or WORK, "batch_messages": keys.get("concurrency", 1), **keys}
    outbox.configure({"jobs": jobs})
    outbox.environment |= {FOLDER: str(outbox.folder), "PYTHONPATH": str(ROOT)}


def job(outbox: Outbox, kind: str = "Work", **steps: Any) -> int:
    """Write one message, whose handler will do this; its id."""
    (message_id,) = outbox.insert(kind=kind, payload=json.dumps([steps]))
    return message_id


def ids(outbox: Outbox, what: str) -> list[int]:
    return [note["id"] for note in notes(outbox.folder, what)]


def wait_for(outbox: Outbox, what: str, count: int = 1, timeout: float = 20.0) -> None:
    wait_until(lambda: len(ids(outbox, what)) >= count, timeout=timeout, what=f"{count} times {what}")


def dead(outbox: Outbox) -> dict[int, tuple[int, str]]:
    """Attempts and error of each dead message, by id."""
    return {row[0]: row[1:] for row in outbox.sql("select id, attempts, error from relay.dead")}


@both_executors
def test_a_function_is_called_once_for_each_message(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, workers=2, concurrency=3)
    expected = outbox.insert(40, kind="Work", payload="[{}]") + outbox.insert(10, kind="WorkAsync", payload="[{}]")
    with outbox.relay() as relay:
        outbox.wait_until_empty()
    done = notes(outbox.folder, "done")
    assert sorted(note["id"] for note in done) == expected
    assert (relay.pid in {note["pid"] for note in done}) is (executor == "thread")


def test_handlers_come_from_the_current_directory(outbox: Outbox) -> None:
    (outbox.folder / "shop").mkdir()
    (outbox.folder / "shop" / "jobs.py").write_text("from tests.local_handlers import work as send_receipt")
    configure(outbox, {"Send*": "shop.jobs:send_receipt"})
    job(outbox, "SendReceipt")
    with outbox.relay():
        outbox.wait_until_empty()
    assert len(ids(outbox, "done")) == 1


@both_executors
def test_what_a_handler_raises(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, max_attempts=2, workers=3)
    retry, reject, hold, key_error, leaves = (
        job(outbox, **{"raise": name}) for name in ("Retry", "Reject", "Hold", "KeyError", "SystemExit")
    )
    leaves_async, fine = job(outbox, "WorkAsync", **{"raise": "SystemExit"}), job(outbox)
    with outbox.relay() as relay:
        wait_until(lambda: len(dead(outbox)) == 5 and fine in ids(outbox, "done"), timeout=20, what="all being settled")
        wait_until(lambda: ids(outbox, "begun").count(hold) >= 3, timeout=20, what="several tries of what is held")
        said = relay.server.log.read_text()
    assert {id: attempts for id, (attempts, _) in dead(outbox).items()} == {
        retry: 2,
        reject: 1,
        key_error: 2,
        leaves: 2,
        leaves_async: 2,
    }
    errors = {id: error for id, (_, error) in dead(outbox).items()}
    assert errors[retry] == "come again"
    assert errors[reject] == "never"
    assert errors[key_error].startswith("KeyError at tests/local_handlers.py:")
    assert errors[leaves_async].startswith("SystemExit at tests/local_handlers.py:")
    assert outbox.sql("select id, attempts, last_error from relay.outbox") == [(hold, 0, "it is down")]
    assert "secret-of-the-payload" not in said + str(errors)


def test_a_kind_without_handler_waits_for_one(outbox: Outbox) -> None:
    configure(outbox)
    missing, fine = job(outbox, "Unknown"), job(outbox)
    with outbox.relay():
        wait_until(lambda: ids(outbox, "done") == [fine], what="the other kind being done")
        wait_until(
            lambda: (
                outbox.sql("select attempts, last_error from relay.outbox where id = %s", missing)
                == [(0, "no handler for this kind")]
            ),
            what="it being held, uncounted",
        )
    configure(outbox, {"*": "tests.local_handlers:work"})
    with outbox.relay():
        outbox.wait_until_empty()
    assert ids(outbox, "done") == [fine, missing]


@both_executors
def test_a_handler_that_cannot_be_imported_is_the_sink_s_fault(outbox: Outbox, executor: str) -> None:
    configure(outbox, {"Work": "later:work"}, executor=executor)
    job(outbox)
    with outbox.relay() as relay:
        wait_until(lambda: relay.events("sink is unwell"), what="the relay saying so")
        (event,) = relay.events("sink is unwell")
        assert event["reason"] == "handler later:work: ModuleNotFoundError: No module named 'later'"
        (outbox.folder / "later.py").write_text("from tests.local_handlers import work")
        outbox.wait_until_empty()
    assert [note["attempts"] for note in notes(outbox.folder, "done")] == [1]


def test_checking_the_configuration_imports_nothing(outbox: Outbox) -> None:
    (outbox.folder / "shop.py").write_text("raise SystemExit('imported')")
    configure(outbox, {"Work": "shop:work"})
    for command in (["config", "check"], ["config", "show"], ["apply"]):
        done = outbox.run_relay(*command)
        assert (done.returncode, done.stderr) == (0, ""), command


@both_executors
def test_long_work_keeps_its_lease(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor)
    long = job(outbox, sleep=5)
    with outbox.relay(), outbox.relay():
        outbox.wait_until_empty()
    assert ids(outbox, "begun") == ids(outbox, "done") == [long]


@both_executors
def test_a_killed_worker_loses_no_job(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, workers=3)
    caught = [job(outbox, until="go") for _ in range(3)]
    with outbox.relay() as relay:
        wait_for(outbox, "begun", 3)
        os.kill(relay.pid, signal.SIGKILL)  # it alone: its children have to notice by themselves
        (outbox.folder / "go").touch()
        children = {note["pid"] for note in notes(outbox.folder, "begun")} - {relay.pid}
        wait_until(lambda: not any(map(runs, children)), what="its children being gone")
    before = Counter(ids(outbox, "done"))
    with outbox.relay():
        outbox.wait_until_empty()
    # A child may have come to its end in the moment before it noticed.
    assert Counter(ids(outbox, "done")) - before == dict.fromkeys(caught, 1)


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_job_that_kills_its_process_runs_out_of_attempts_alone(outbox: Outbox) -> None:
    configure(outbox, concurrency=5, max_attempts=4)
    killer = job(outbox, sleep=0.2, exit=9)
    others = [job(outbox, sleep=1.0) for _ in range(4)]
    deaths = 0
    while dead(outbox).keys() != {killer}:
        with outbox.relay(wait=False) as relay:
            wait_until(
                lambda relay=relay: not relay.server.running() or outbox.is_empty(),  # type: ignore[misc]
                timeout=20,
                what="the relay's end",
            )
            deaths += not relay.server.running()
        assert deaths <= 4
    assert dead(outbox)[killer][0] == deaths == 4
    with outbox.relay():
        outbox.wait_until_empty()
    assert Counter(ids(outbox, "done")) == dict.fromkeys(others, 1)


@pytest.mark.parametrize(
    ("step", "how"),
    [({"exit": 9}, "ended with exit code 9"), ({"signal": signal.SIGKILL}, "died of SIGKILL")],
    ids=["exit", "signal"],
)
def test_a_job_that_kills_its_child_harms_no_other(outbox: Outbox, step: dict[str, Any], how: str) -> None:
    configure(outbox, executor="process", concurrency=4, max_attempts=3)
    killer = job(outbox, **step)
    others = [job(outbox, sleep=0.3) for _ in range(8)]
    with outbox.relay():
        outbox.wait_until_empty()
    assert dead(outbox) == {killer: (3, f"its process {how}")}
    assert sorted(ids(outbox, "begun")) == sorted([killer] * 3 + others)
    assert sorted(ids(outbox, "done")) == others


@pytest.mark.parametrize(
    ("kind", "keys", "interrupted"),
    [
        ("Work", {"executor": "thread"}, True),
        ("WorkAsync", {"executor": "thread"}, True),
        ("Work", {"executor": "process"}, False),
        ("WorkAsync", {"executor": "process"}, False),
    ],
    ids=["thread", "async", "process", "async in a process"],
)
def test_time_out(outbox: Outbox, kind: str, keys: dict[str, Any], interrupted: bool) -> None:
    configure(outbox, timeout="500ms", max_attempts=2, workers=2, **keys)
    long, short = job(outbox, kind, sleep=30), job(outbox, kind, sleep=0.1)
    with outbox.relay() as relay:
        outbox.wait_until_empty(timeout=15)
        assert not relay.events("worker failed")
    assert dead(outbox) == {long: (2, "timed out after 0.5 s")}
    assert ids(outbox, "done") == [short]
    assert (outbox.folder / "interrupted").exists() is interrupted


def test_a_thread_that_cannot_be_interrupted_is_left_behind(outbox: Outbox) -> None:
    configure(outbox, timeout="500ms", max_attempts=1)
    # CPython 3.11: while an exception is pending for one thread, a traced one never gets past a function's start.
    outbox.environment |= {"COVERAGE_PROCESS_CONFIG": ""}
    blocked, fine = job(outbox, block=30), job(outbox)
    with outbox.relay() as relay:
        outbox.wait_until_empty(timeout=15)
        (event,) = relay.events("handler for kind Work does not end: its thread is left behind")
        relay.signal(signal.SIGTERM)
        assert relay.exit_code() == 0
    assert event["level"] == "warning"
    assert dead(outbox) == {blocked: (1, "timed out after 0.5 s")}
    assert ids(outbox, "done") == [fine]


@both_executors
def test_a_stop_lets_running_jobs_finish_and_gives_the_others_back(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, concurrency=2, batch_messages=6)
    jobs = [job(outbox, until="go") for _ in range(6)]
    with outbox.relay() as relay:
        wait_for(outbox, "begun", 2)
        os.killpg(relay.pid, signal.SIGTERM)  # as systemd and a terminal do: the children get it too
        wait_until(lambda: relay.events("draining"), what="the relay draining")
        (outbox.folder / "go").touch()
        assert relay.exit_code() == 0
        assert not relay.events("sink is unwell")
    done = ids(outbox, "done")
    assert len(done) == 2
    left = outbox.sql("select id, attempts, claim_token, prior_tokens from relay.outbox order by id")
    assert left == [(id, 0, None, None) for id in jobs if id not in done]


@both_executors
def test_a_job_longer_than_the_grace_is_given_back(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor)
    long = job(outbox, sleep=60)
    with outbox.relay("--grace", "1s") as relay:
        wait_for(outbox, "begun")
        children = {note["pid"] for note in notes(outbox.folder)} - {relay.pid}
        relay.signal(signal.SIGTERM)
        assert relay.exit_code(timeout=6) == 0
        wait_until(lambda: not any(map(runs, children)), what="its children being gone")
    assert outbox.sql("select id, attempts, claim_token from relay.outbox") == [(long, 0, None)]


@both_executors
def test_order_of_a_key(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, order="key", concurrency=4, batch_messages=20, workers=2)
    expected: dict[str, list[int]] = {}
    for number in range(30):
        key = f"key-{number % 3}"
        # The first of one key fails once; the later ones wait for it.
        steps = {"raise": "Retry"} if number == 0 else {}
        expected.setdefault(key, []).extend(
            outbox.insert(kind="Work", key=key, payload=json.dumps([steps]), max_attempts=2)
        )
    with outbox.relay():
        outbox.wait_until_empty()
    failed = expected["key-0"].pop(0)
    assert dead(outbox) == {failed: (2, "come again")}
    done = ids(outbox, "done")
    for of_key in expected.values():
        assert [id for id in done if id in of_key] == of_key
    assert Counter(done) == dict.fromkeys(chain.from_iterable(expected.values()), 1)
    begun = ids(outbox, "begun")
    assert begun.index(expected["key-0"][0]) > max(at for at, id in enumerate(begun) if id == failed)
