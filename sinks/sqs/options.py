"""Options of a client of botocore's: ours, those that the configuration has, and what a queue's URL or ARN says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import signature
from typing import Any

from botocore import exceptions as boto
from botocore.config import Config
from botocore.session import Session

from sinks.base import BadClient, BadOption, SinkConfig
from sinks.files import check_files
from sinks.sqs.names import place_of


def check_options(config: SinkConfig) -> None:
    """
    Raises:
        BadClient: boto3 does not take an option of `client`.
        BadOption: nothing says the region.
    """
    known = {*signature(Session.create_client).parameters, "profile_name"} - {"self", "service_name"}
    if unknown := sorted(set(config.client) - known):
        raise BadClient(dict.fromkeys(unknown, "an option that boto3 knows"))
    try:
        boto_config(config, config.client.get("config"))
    except (TypeError, boto.BotoCoreError) as error:
        raise BadClient({"config": f"what botocore's Config takes: {error}"}) from error
    check_files(config.client, ["verify"])
    place = {**place_options(config.options.queue.text), **config.client}
    profile = config.client.get("profile_name")
    try:
        region = config.options.region or place.get("region_name") or _region_of(profile)
    except boto.BotoCoreError as error:
        raise BadClient({"profile_name": f"a profile of AWS's configuration: {error}"}) from error
    if not region:
        raise BadOption("region", "a region: here, in the URL or ARN of the queue, or as botocore finds it")


def _region_of(profile: str | None) -> str | None:
    """What the environment and AWS's files say."""
    region: str | None = Session(profile=profile).get_config_variable("region")
    return region


def boto_config(config: SinkConfig, given: Config | Mapping[str, Any] | None) -> Config:
    """botocore's configuration: ours, the given one over it, and no retries."""
    # Connecting and reading end within half of the send time-out, and no call starts in its second half.
    quarter = config.send_timeout / 4
    ours = Config(connect_timeout=quarter, read_timeout=quarter, max_pool_connections=config.options.in_flight)
    theirs = Config(**given) if isinstance(given, Mapping) else given or Config()
    if not isinstance(theirs, Config):
        raise TypeError(f"expected a table of botocore.config.Config's options, got {given!r}")
    return ours.merge(theirs).merge(Config(retries={"total_max_attempts": 1}))


def place_options(queue: str) -> dict[str, str]:
    """What a queue says of region and endpoint, as options of a client."""
    region, endpoint = place_of(queue)
    if any(name in os.environ for name in ("AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL")):
        endpoint = None
    return {name: value for name, value in (("region_name", region), ("endpoint_url", endpoint)) if value}
