"""`relay pause` and `relay resume`."""

from __future__ import annotations

import psycopg
import pytest

from tests.command import SINKS, Command


def test_paused_with_a_reason_and_resumed(relay: Command) -> None:
    assert relay("pause", "emails", "--reason", "broker upgrade") == 'sink "emails" is paused: broker upgrade\n'
    assert relay.json("status")["sinks"]["emails"]["paused"] == "broker upgrade"
    assert relay.json("status")["sinks"]["orders"]["paused"] is None
    assert relay("resume", "emails") == 'sink "emails" is not paused\n'
    assert relay.json("status")["sinks"]["emails"]["paused"] is None


def test_both_can_be_said_twice(relay: Command, relay_database_url: str) -> None:
    with psycopg.connect(relay_database_url, autocommit=True) as conn:
        since = "select paused_at from relay.sinks where name = 'emails'"
        relay("pause", "emails", "--reason", "one")
        first = conn.execute(since).fetchone()
        relay("pause", "emails", "--reason", "two")
        assert conn.execute(since).fetchone() == first
    assert relay.json("status")["sinks"]["emails"]["paused"] == "two"
    relay("resume", "emails")
    relay("resume", "emails")


def test_applying_the_file_again_does_not_resume(relay: Command) -> None:
    relay("pause", "emails", "--reason", "broker upgrade")
    relay.configure(
        SINKS.replace('[sinks.emails]\ntype = "memory"', '[sinks.emails]\ntype = "memory"\nmax_attempts = 5')
    )
    relay("apply")
    assert relay.json("status")["sinks"]["emails"]["paused"] == "broker upgrade"


@pytest.mark.parametrize("args", [["pause", "email", "--reason", "x"], ["resume", "email"]])
def test_an_unknown_sink_is_told_the_nearest(relay: Command, args: list[str]) -> None:
    refused = relay.run(*args)
    assert refused.returncode == 2
    assert 'the nearest is "emails"' in refused.stderr


@pytest.mark.parametrize("args", [["pause", "emails"], ["pause", "emails", "--reason", " "], ["pause"], ["resume"]])
def test_wrong_usage(relay: Command, args: list[str]) -> None:
    assert relay.run(*args).returncode == 2
