"""Credentials that come, expire and change while the process lives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sinks.base import DELIVERED, Hold
from sinks.testing import message
from tests.servers.sqs_answers import Call, Fault
from tests.servers.sqs_stub import SqsStub
from tests.sqs_sinks import only_boto3, opened, send, unavailable


@pytest.fixture(params=["awscrt", "boto3"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "boto3":
        only_boto3(monkeypatch)


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the AWS credentials file will be; nothing else gives any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def write(file: Path, key: str) -> None:
    lines = ["[default]", f"aws_access_key_id = {key}", "aws_secret_access_key = s", f"aws_session_token = {key}-token"]
    file.write_text("\n".join(lines) + "\n")


def key_of(call: Call) -> str:
    authorization = call.headers["Authorization"]
    assert (
        call.headers["X-Amz-Security-Token"] == authorization.partition("Credential=")[2].partition("/")[0] + "-token"
    )
    return authorization.partition("Credential=")[2].partition("/")[0]


def client(stub: SqsStub) -> dict[str, str]:
    return {"endpoint_url": stub.url, "region_name": "eu-central-1"}


@pytest.mark.parametrize("fault", [Fault("ExpiredToken", 403), Fault("ExpiredTokenException", 400)])
def test_rewritten_credentials_are_used_without_a_restart(sqs_stub: SqsStub, credentials: Path, fault: Fault) -> None:
    write(credentials, "OLD")
    expired: set[str] = set()
    sqs_stub.on_send = sqs_stub.on_question = lambda call: fault if key_of(call) in expired else None
    messages = [message(number) for number in range(12)]
    with opened(client(sqs_stub)) as sink:
        assert send(sink, messages) == [DELIVERED] * 12
        expired.add("OLD")
        for _ in range(3):
            outcomes = send(sink, messages)
            assert {type(outcome) for outcome in outcomes} == {Hold}
            assert all(isinstance(one, Hold) and one.reason.startswith("auth: ") for one in outcomes)
            assert all(isinstance(one, Hold) and one.destination is None for one in outcomes)
        write(credentials, "NEW")
        # Held once more at most: by the session that met the refusal.
        assert DELIVERED in {*send(sink, messages), *send(sink, messages)}
        assert key_of(sqs_stub.calls[-1]) == "NEW"


def test_credentials_may_come_later(sqs_stub: SqsStub, credentials: Path) -> None:
    # With a URL and a limit, nothing but the sending itself needs them.
    for options in ({}, {"queue": sqs_stub.queue_url("orders"), "size_limit": 4096}):
        credentials.unlink(missing_ok=True)
        with opened(client(sqs_stub), **options) as sink:  # type: ignore[arg-type]
            (outcome,) = send(sink, [message(1)])
            assert isinstance(outcome, Hold)
            assert outcome.reason.startswith("auth: ")
            assert outcome.destination is None
            assert sqs_stub.sends() == []
            write(credentials, "NEW")
            assert send(sink, [message(1)]) == [DELIVERED]
        sqs_stub.calls.clear()


SHORT_LIVED = """
[ ! -e {slow} ] || sleep 20
now=$(date -u -d '+60 seconds' +%Y-%m-%dT%H:%M:%SZ)
echo '{{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "A-token", "Expiration": "'$now'"}}'
"""


def test_renewing_that_takes_too_long_ends_in_time(sqs_stub: SqsStub, credentials: Path, tmp_path: Path) -> None:
    slow, program = tmp_path / "slow", tmp_path / "program"
    program.write_text(SHORT_LIVED.format(slow=slow))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = sh {program}\n")
    with opened(client(sqs_stub), send_timeout=1.0) as sink:
        assert send(sink, [message(1)]) == [DELIVERED]
        slow.touch()
        began = time.monotonic()
        assert unavailable(sink, [message(2)]).unknown is False
        assert time.monotonic() - began < 10
        slow.unlink()
        assert send(sink, [message(2)]) == [DELIVERED]
