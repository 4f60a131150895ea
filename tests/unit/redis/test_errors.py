"""Redis's error texts, as each version spells them."""

from __future__ import annotations

import pytest
from redis import exceptions as redis

from sinks.base import Hold, Outcome, Reject, Retry
from sinks.redis.errors import BEHIND, client_refused, describe, moved_to, outcome_of, refused

ALL = "queue:a"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Hold("", ALL)),
        ("ERR The stream has exhausted the last possible ID, unable to add more items", Hold("", ALL)),
        (
            "@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the "
            "command arguments",
            Hold("", ALL),
        ),
        ("ERR The user executing the script can't run this command or subcommand", Hold("", ALL)),
        ("ERR ACL failure in script: User relay has no permissions to run the 'lpush' command", Hold("", ALL)),
        ("NOPERM No permissions to access a key", Hold("", ALL)),
        ("@user_script: 1: Unknown Redis command called from Lua script", Hold("", ALL)),
        ("ERR Unknown Redis command called from script", Hold("", ALL)),
        ("OOM command not allowed when used memory > 'maxmemory'.", Hold("")),
        ("@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", Hold("")),
        ("@user_script: 1: -READONLY You can't write against a read only replica.", Hold("")),
        ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.", Hold("")),
        ("NOREPLICAS Not enough good replicas to write.", Hold("")),
        ("ERR Script attempted to access a non local key in a cluster node", Hold("")),
        ("ERR Elements are too large to be stored", Reject("")),
        ("ERR string exceeds maximum allowed size (proto-max-bulk-len)", Reject("")),
        ("ERR value is not a valid float", Retry("")),
    ],
)
def test_outcome_of_a_message_that_could_not_be_pushed(error: str, outcome: Outcome) -> None:
    found = outcome_of(error, ALL)
    assert type(found) is type(outcome)
    assert getattr(found, "destination", None) == getattr(outcome, "destination", None)
    assert "queue:a: " in repr(found)


def test_outcome_of_a_message_behind_a_failed_one() -> None:
    assert outcome_of(BEHIND, "") == Retry("not sent: an earlier message of its key was not delivered")


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), True),
        (redis.ReadOnlyError("You can't write against a read only replica."), True),
        (redis.AuthenticationError("Authentication required."), True),
        (redis.MasterDownError("Link with MASTER is down"), True),
        (redis.ClusterDownError("Hash slot not served"), True),
        (redis.MovedError("3999 127.0.0.1:6381"), True),
        (redis.NoPermissionError("this user has no permissions to run the 'evalsha' command"), True),
        (redis.ResponseError("BUSY Redis is busy running a script."), True),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), True),
        (redis.ResponseError("unknown command 'EVALSHA', with args beginning with:"), True),
        (redis.ResponseError("Protocol error: unauthenticated multibulk length"), True),
        (redis.ConnectionError("Connection closed by server."), False),
        (redis.TimeoutError("Timeout reading from socket"), False),
        (redis.InvalidResponse("Protocol Error: b'x'"), False),
        (redis.OutOfMemoryError("command not allowed script: 7b54, on @user_script:95."), False),
        (redis.ResponseError("Error running script: @user_script:95: too many results to unpack"), False),
    ],
)
def test_what_a_failed_call_can_have_done(error: redis.RedisError, known: bool) -> None:
    assert refused(error) is known


def test_description_names_the_code_in_one_short_line() -> None:
    assert describe(redis.ReadOnlyError("You can't\r\nwrite")) == "READONLY You can't write"
    assert describe(redis.ResponseError("BUSY here")) == "BUSY here"
    assert len(describe("x" * 1000)) == 300


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("NOAUTH Authentication required.", True),
        ("NOAUTH invalid username-password pair or user is disabled.", True),
        ("NOPERM User relay has no permissions to run the 'evalsha' command", True),
        ("unknown command 'EVALSHA', with args beginning with:", True),
        ("CLUSTERDOWN The cluster is down", True),
        ("NOPERM No permissions to access a key", False),
        ("NOPERM this user has no permissions to access one of the keys used as arguments", False),
        ("CLUSTERDOWN Hash slot not served", False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("ASK 2399 127.0.0.1:7000", False),
        ("Error 111 connecting to 127.0.0.1:7000. Connection refused.", False),
    ],
)
def test_refusal_that_every_node_would_give(reason: str, expected: bool) -> None:
    assert client_refused(reason) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.MovedError("2399 127.0.0.1:7000"), ("127.0.0.1", 7000)),
        (redis.ResponseError("MOVED 2399 2001:db8::1:7000"), ("2001:db8::1", 7000)),
        (redis.ResponseError("MOVED 2399 :7000"), ("", 7000)),
        (redis.AskError("2399 127.0.0.1:7000"), None),
    ],
)
def test_slot_that_has_moved(error: redis.RedisError, expected: tuple[str, int] | None) -> None:
    assert moved_to(describe(error)) == expected
