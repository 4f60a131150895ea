"""Queues by name, URL or ARN: what can be one, and which region and endpoint it says."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

EXPECTED: Final = (
    "a queue's name (1 to 80 letters, digits, hyphens and underscores, at the end .fifo or not), its URL, or its ARN"
)

_NAME = re.compile(r"(?=.{1,80}\Z)[A-Za-z0-9_-]+(?:\.fifo)?")
_URL = re.compile(r"https?://[^\s/]+/\S+")
_ARN = re.compile(r"arn:aws[a-z-]*:sqs:([a-z0-9-]+):(\d{12}):(.+)")

_ENDPOINT = re.compile(r"(https?://([^/{}\s:]+)(?::\d+)?)(?=/)")
_REGION = r"([a-z]{2,}(?:-[a-z]+)+-\d+)"
_AMAZON = r"amazonaws\.(?:com(?:\.cn)?|eu)"
_USUAL_HOSTS = [
    re.compile(rf"sqs\.{_REGION}\.(?:{_AMAZON}|c2s\.ic\.gov|sc2s\.sgov\.gov)"),
    re.compile(rf"{_REGION}\.queue\.{_AMAZON}"),
]
"""Those that botocore chooses for a region, and their old names."""
_OTHER_HOSTS = [
    re.compile(rf"vpce-[a-z0-9-]+\.sqs\.{_REGION}\.vpce\.{_AMAZON}"),
    re.compile(rf"sqs-fips\.{_REGION}\.(?:{_AMAZON}|api\.aws)"),
    re.compile(rf"sqs\.{_REGION}\.api\.(?:aws|amazonwebservices\.(?:com\.cn|eu))"),
]
"""VPC endpoints, FIPS, dual stack: a queue with such a URL is called there."""


class Arn(NamedTuple):
    """A queue by its Amazon resource name."""

    region: str
    account: str
    name: str


class Place(NamedTuple):
    """Where a queue is, as far as its URL or ARN says it."""

    region: str | None = None
    endpoint: str | None = None
    """None: the usual one of the region."""


def arn_of(queue: str) -> Arn | None:
    """The parts of an ARN; None where it is none."""
    found = _ARN.fullmatch(queue)
    return Arn(*found.groups()) if found and _NAME.fullmatch(found[3]) else None


def is_queue(queue: str) -> bool:
    """Whether this can be the name, the URL or the ARN of a queue."""
    return bool(_NAME.fullmatch(queue) or _URL.fullmatch(queue) or arn_of(queue))


def place_of(queue: str) -> Place:
    """What a queue, or the template of its name, says of region and endpoint."""
    if arn := re.match(r"arn:aws[a-z-]*:sqs:([a-z0-9-]+):", queue):
        return Place(arn[1])
    url = _ENDPOINT.match(queue)
    if url is None:
        return Place()
    endpoint, host = url.groups()
    if host == "queue.amazonaws.com":
        return Place("us-east-1")
    for hosts, called in ((_USUAL_HOSTS, None), (_OTHER_HOSTS, endpoint)):
        for form in hosts:
            if found := form.fullmatch(host):
                return Place(found[1], called)
    return Place(None, endpoint)
