"""Queues by name, URL or ARN: which can be one, and what they say of region and endpoint.

Constants are checked with the configuration, as each message would be refused otherwise; what a template gives is
checked message by message.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sinks.sqs.names import Place, is_queue, place_of
from sinks.sqs.sink import SqsOptions

QUEUE = "/123456789012/orders"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("sqs.eu-central-1.amazonaws.com", "eu-central-1"),
        ("sqs.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("sqs.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("sqs.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("eu-west-1.queue.amazonaws.com", "eu-west-1"),
        ("cn-northwest-1.queue.amazonaws.com.cn", "cn-northwest-1"),
        ("queue.amazonaws.com", "us-east-1"),
    ],
)
def test_usual_hosts_of_a_region(host: str, region: str) -> None:
    assert place_of(f"https://{host}{QUEUE}") == Place(region)
    assert place_of(f"https://{host}/123456789012/{{kind}}") == Place(region)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("vpce-0a1b2c3d-4e5f6a7b.sqs.us-east-1.vpce.amazonaws.com", "us-east-1"),
        ("vpce-0a1b2c3d-4e5f6a7b-us-east-1a.sqs.us-east-1.vpce.amazonaws.com", "us-east-1"),
        ("sqs-fips.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("sqs-fips.us-west-2.api.aws", "us-west-2"),
        ("sqs.eu-west-1.api.aws", "eu-west-1"),
        ("sqs.cn-north-1.api.amazonwebservices.com.cn", "cn-north-1"),
    ],
)
def test_other_hosts_of_amazon_say_the_region_and_are_called(host: str, region: str) -> None:
    assert place_of(f"https://{host}{QUEUE}") == Place(region, f"https://{host}")


def test_other_hosts_are_endpoints_and_names_say_nothing() -> None:
    assert place_of("http://localhost:9324/000000000000/orders") == Place(None, "http://localhost:9324")
    assert place_of("https://sqs.eu-west-1.amazonaws.com.example.org/1/orders").region is None
    assert place_of("orders.fifo") == place_of("{kind}") == place_of("https://{kind}/1/orders") == Place()


def test_arn_says_the_region() -> None:
    assert place_of("arn:aws-us-gov:sqs:us-gov-west-1:123456789012:orders") == Place("us-gov-west-1")
    assert place_of("arn:aws:sqs:eu-west-1:123456789012:{kind}") == Place("eu-west-1")


@pytest.mark.parametrize("queue", ["orders", "orders.fifo", "arn:aws:sqs:eu-west-1:123456789012:orders.fifo"])
def test_constant_that_may_be_a_queue(queue: str) -> None:
    assert is_queue(queue)
    assert SqsOptions.model_validate({"queue": queue}).queue.constant == queue


@pytest.mark.parametrize(
    "queue",
    ["my queue", "a/b", "x" * 81, "orders.other", "arn:aws:sns:eu-west-1:123456789012:orders", "https://host", "ä"],
)
def test_constant_that_can_be_no_queue_is_a_wrong_configuration(queue: str) -> None:
    with pytest.raises(ValidationError, match="a queue's name"):
        SqsOptions.model_validate({"queue": queue})
