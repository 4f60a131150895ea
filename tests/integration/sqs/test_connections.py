"""How the SQS sink reaches the service: endpoints, regions, TLS, kept connections, proxies."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sinks.base import DELIVERED, BadOption, SinkConfig, SinkUnavailable
from sinks.sqs import connections as sqs_connections
from sinks.sqs.client import SqsClient
from sinks.sqs.crt import CrtSender
from sinks.sqs.sink import SqsOptions, SqsSink
from sinks.testing import message
from tests.servers.base import LOCALHOST, wait_until
from tests.servers.proxy import FaultProxy
from tests.servers.sqs_stub import CLIENT, SqsStub, certificate, run_stub
from tests.sqs_sinks import only_boto3, opened, send, unavailable


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def made(queue: str = "orders", region: str | None = None, **client: Any) -> SqsClient:
    keys = {name: value for name, value in CLIENT.items() if name != "region_name"}
    options = SqsOptions.model_validate({"queue": queue, "region": region})
    return SqsClient(SinkConfig("a-sink", options, client={**keys, **client}))


def endpoint(client: SqsClient) -> str:
    """Where awscrt sends to."""
    sender = CrtSender(client)
    return f"{dict(sender._headers)['Host']}{sender._path}"


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    ("region", "fips", "dualstack"),
    [*itertools.product(["eu-central-1", "us-east-1", "cn-north-1", "us-iso-east-1"], [False, True], [False, True])],
)
def test_endpoint_is_the_one_that_boto3_uses(region: str, fips: bool, dualstack: bool) -> None:
    client = made(region=region, config={"use_fips_endpoint": fips, "use_dualstack_endpoint": dualstack})
    asked: list[str] = []

    def stop(request: Any, **_: Any) -> None:
        asked.append(request.url)
        raise Stop

    client.boto.meta.events.register("before-send.sqs", stop)
    with pytest.raises(Stop):
        client.boto.get_queue_url(QueueName="orders")
    assert f"https://{endpoint(client)}" == asked[0]
    client.close()


@pytest.mark.parametrize(
    ("queue", "region", "where"),
    [
        ("https://sqs.eu-west-3.amazonaws.com/1/orders", "eu-west-3", "sqs.eu-west-3.amazonaws.com/"),
        ("https://sqs.eu-west-3.amazonaws.com/1/{kind}", "eu-west-3", "sqs.eu-west-3.amazonaws.com/"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/orders", "cn-north-1", "sqs.cn-north-1.amazonaws.com.cn/"),
    ],
)
def test_queue_url_of_amazon_says_the_region(queue: str, region: str, where: str) -> None:
    client = made(queue)
    assert client.boto.meta.region_name == region
    assert endpoint(client) == where
    client.close()


def test_queue_url_of_somebody_else_says_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = "http://sqs.test:9324/000000000000/orders"
    for options, where in (
        ({}, "sqs.test:9324/"),
        ({"endpoint_url": "http://other:1/prefix/"}, "other:1/prefix/"),
    ):
        client = made(queue, region="x", **options)
        assert endpoint(client) == where
        client.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://from-environment:2")
    client = made(queue, region="x")
    assert endpoint(client) == "from-environment:2/"
    client.close()


def test_region_of_the_sink_comes_before_that_of_the_client() -> None:
    client = made(region="eu-north-1", region_name="us-east-2")
    assert client.boto.meta.region_name == "eu-north-1"
    client.close()


def test_without_a_region_the_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(BadOption, match="region"):
        made_sink("orders")
    made_sink("arn:aws:sqs:eu-west-1:123456789012:orders")
    made_sink("https://vpce-0a1b2c-xyz.sqs.eu-west-1.vpce.amazonaws.com/123456789012/orders")
    made_sink("orders", region="eu-west-1")
    with pytest.raises(BadOption, match="region"):
        made_sink("http://localhost:9324/000000000000/orders")
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    made_sink("orders")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    made_sink("orders")


def made_sink(queue: str, **options: str) -> None:
    SqsSink(SinkConfig("a-sink", SqsOptions.model_validate({"queue": queue, **options})))


@pytest.mark.parametrize(
    ("client", "named"),
    [({"no_such": 1}, "no_such"), ({"config": {"no_such": 1}}, "no_such"), ({"config": 7}, r"config: expected")],
)
def test_wrong_client_option_is_named(client: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SqsSink(SinkConfig("a-sink", SqsOptions.model_validate({"queue": "q"}), client=client))


def test_missing_profile_is_named() -> None:
    client = {"profile_name": "none-such"}
    sink = SqsSink(SinkConfig("a-sink", SqsOptions.model_validate({"queue": "q", "region": "x"}), client=client))
    with pytest.raises(SinkUnavailable, match="none-such"):
        sink.open()


@pytest.mark.parametrize(("text", "size"), [("256KiB", 262_144), (262_144, 262_144), ("1MiB", 2**20)])
def test_size_limit_is_a_size(text: str | int, size: int) -> None:
    assert SqsOptions.model_validate({"queue": "q", "size_limit": text}).size_limit == size


@pytest.mark.parametrize("text", ["lots", 100, -1])
def test_size_limit_that_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(ValidationError, match="size_limit"):
        SqsOptions.model_validate({"queue": "q", "size_limit": text})


def test_botocore_does_not_retry() -> None:
    client = made(region="x", config={"retries": {"max_attempts": 9}})
    assert client.boto.meta.config.retries["total_max_attempts"] == 1
    client.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("boto3", [False, True])
def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boto3: bool) -> None:
    if boto3:
        only_boto3(monkeypatch)
    files = certificate(tmp_path)
    with run_stub(tls=files) as stub:
        where: dict[str, Any] = {"queue": stub.queue_url("orders"), "size_limit": 4096, "send_timeout": 1.0}
        with opened({**CLIENT, "verify": str(files[0])}, **where) as sink:
            assert send(sink, [message(1)]) == [DELIVERED]
        with opened({**CLIENT, "verify": False}, **where) as sink:
            assert send(sink, [message(2)]) == [DELIVERED]
        with opened(CLIENT, **where) as sink:
            assert unavailable(sink, [message(3)]).unknown is False
        monkeypatch.setenv("AWS_CA_BUNDLE", str(files[0]))
        with opened(CLIENT, **where) as sink:
            assert send(sink, [message(4)]) == [DELIVERED]
    assert len(stub.sent) == 3


def test_connections_are_kept(sqs_stub: SqsStub) -> None:
    with opened(sqs_stub.client, in_flight=1) as sink:
        for number in range(5):
            assert send(sink, [message(number)]) == [DELIVERED]
    assert len({call.connection for call in sqs_stub.sends()}) == 1


def test_idle_connection_is_left_alone_after_a_while(sqs_stub: SqsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs_connections, "IDLE_S", 0.0)
    with opened(sqs_stub.client, in_flight=1) as sink:
        for number in range(3):
            assert send(sink, [message(number)]) == [DELIVERED]
    assert len({call.connection for call in sqs_stub.sends()}) == 3


@pytest.mark.parametrize("reset", [True, False])
def test_idle_connection_that_the_service_closed_is_not_used(sqs_stub: SqsStub, reset: bool) -> None:
    with FaultProxy(LOCALHOST, sqs_stub.port) as proxy:
        through = {**CLIENT, "endpoint_url": f"http://{LOCALHOST}:{proxy.port}"}
        with opened(through, queue=sqs_stub.queue_url("orders"), size_limit=4096, in_flight=1) as sink:
            assert send(sink, [message(1)]) == [DELIVERED]
            (connection, _) = sink._sender._connections._idle[0]  # type: ignore[union-attr]
            proxy.cut(reset=reset)
            wait_until(lambda: not connection.is_open())
            assert send(sink, [message(2)]) == [DELIVERED]


def test_closing_leaves_no_connection_open(sqs_stub: SqsStub) -> None:
    with FaultProxy(LOCALHOST, sqs_stub.port) as proxy:
        through = {**CLIENT, "endpoint_url": f"http://{LOCALHOST}:{proxy.port}"}
        with opened(through, queue=sqs_stub.queue_url("orders"), size_limit=4096) as sink:
            assert send(sink, [message(number) for number in range(100)]) == [DELIVERED] * 100
            assert proxy.connections > 0
        wait_until(lambda: proxy.connections == 0)


@pytest.mark.parametrize(
    "config", [{"proxies": {"http": "http://127.0.0.1:9"}}, {"client_cert": "/a.pem"}, {"signature_version": "v4a"}]
)
def test_what_only_botocore_can_do_goes_by_botocore(config: dict[str, Any]) -> None:
    plain, special = made(region="x"), made(region="x", config=config)
    assert CrtSender.fits(plain)
    assert not CrtSender.fits(special)
    plain.close()
    special.close()


def test_proxy_of_the_environment_is_used(sqs_stub: SqsStub, monkeypatch: pytest.MonkeyPatch) -> None:
    # The stub takes a whole URL as a path, so it can stand in for a proxy too.
    monkeypatch.setenv("http_proxy", sqs_stub.url)
    nowhere = {**CLIENT, "endpoint_url": "http://sqs.nowhere.invalid"}
    with opened(nowhere, queue="http://sqs.nowhere.invalid/1/orders", size_limit=4096) as sink:
        assert send(sink, [message(1)]) == [DELIVERED]
    assert re.match(r"sqs\.nowhere\.invalid", sqs_stub.calls[0].headers["Host"])
