"""A job does what it should not: it raises objects that only its own process can load, leaves tasks, programs and forks
behind, or lives beside folders that are called as ours. Its message fails, its neighbours run once, nothing is left.

The same kind: whatever else crosses the socket of a child, and whatever else a job shares with its neighbours.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.e2e.test_local import both_executors, configure, dead, ids, job, runs, wait_for
from tests.harness.outbox import Outbox
from tests.local_handlers import notes
from tests.servers.base import wait_until


def programs(outbox: Outbox) -> list[int]:
    """Processes that jobs have started."""
    found = [str(note["what"]) for note in notes(outbox.folder)]
    return [int(what.split()[1]) for what in found if what.startswith("program ")]


@both_executors
def test_reason_that_is_an_object_fails_its_own_message(outbox: Outbox, executor: str) -> None:
    """The same goes for a subclass that lacks a reason, which the report did not name."""
    configure(outbox, executor=executor, concurrency=4, max_attempts=2)
    rejected = job(outbox, **{"raise": "Reject of an object"})
    retried = job(outbox, **{"raise": "Retry of an object"})
    unfinished = job(outbox, **{"raise": "a Reject without reason"})
    others = [job(outbox, sleep=0.3) for _ in range(9)]
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        assert not relay.events("sink failed")
    assert Counter(ids(outbox, "done")) == dict.fromkeys(others, 1)
    assert dead(outbox) == {
        rejected: (1, "no stock"),
        retried: (2, "no stock"),
        unfinished: (2, dead(outbox)[unfinished][1]),
    }
    assert dead(outbox)[unfinished][1].startswith("Unfinished at ")
    assert not any(runs(note["pid"]) for note in notes(outbox.folder))


@both_executors
def test_task_that_ends_the_event_loop_fails_no_other_job(outbox: Outbox, executor: str) -> None:
    configure(outbox, executor=executor, concurrency=4, max_attempts=1, timeout="20s")
    jobs = [job(outbox, "WorkAsync", **{"leave behind": "SystemExit", "sleep": 0.5})]
    jobs += [job(outbox, "WorkAsync", sleep=0.5) for _ in range(6)]
    with outbox.relay() as relay:
        outbox.wait_until_empty()
        (event,) = relay.events("a task of a handler ended the event loop with SystemExit: it runs again") or (None,)
    assert (event is not None) is (executor == "thread")  # a child's log is its own
    assert dead(outbox) == {}
    assert Counter(ids(outbox, "done")) == dict.fromkeys(jobs, 1)


def test_child_that_dies_is_noticed_while_its_fork_lives(outbox: Outbox) -> None:
    configure(outbox, executor="process", max_attempts=1, timeout="10m")
    forking = job(outbox, "Work", **{"fork and die": 300})
    with outbox.relay():
        outbox.wait_until_empty()
    assert dead(outbox) == {forking: (1, "its process ended with exit code 9")}


def test_time_out_ends_the_programs_of_a_job(outbox: Outbox) -> None:
    configure(outbox, executor="process", max_attempts=2, timeout="1s")
    job(outbox, program=300)
    with outbox.relay():
        outbox.wait_until_empty()
        assert len(programs(outbox)) == 2
        wait_until(lambda: not any(map(runs, programs(outbox))), what="the programs being gone")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_programs_of_a_job_end_with_the_relay(outbox: Outbox, number: signal.Signals) -> None:
    configure(outbox, executor="process")
    job(outbox, program=300)
    with outbox.relay("--grace", "1s") as relay:
        wait_for(outbox, "begun")
        wait_until(lambda: bool(programs(outbox)), what="the program")
        os.kill(relay.pid, number)
        wait_until(lambda: not any(map(runs, programs(outbox))), what="the program being gone")


def test_folder_of_the_application_called_sinks_is_not_ours(outbox: Outbox) -> None:
    (outbox.folder / "sinks").mkdir()
    (outbox.folder / "sinks" / "__init__.py").write_text("raise RuntimeError('not ours')")
    (outbox.folder / "shop.py").write_text("from tests.local_handlers import work")
    configure(outbox, {"Work": "shop:work"}, executor="process")
    done = job(outbox)
    with outbox.relay():
        outbox.wait_until_empty()
    assert ids(outbox, "done") == [done]
