"""What a server says of itself when a sink is opened."""

from __future__ import annotations

import logging
from functools import cache

import redis

log = logging.getLogger("sinks.redis")

LARGEST_ARGUMENT = 512 * 2**20
"""Bytes: `proto-max-bulk-len` of a server that nobody has changed (redis.conf)."""


def is_cluster_node(client: redis.Redis) -> bool:
    """False, too, where a managed server hides it."""
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except redis.RedisError:
        return False


def largest_argument(client: redis.Redis) -> int:
    """Bytes that one argument may have; the default where a managed server hides it."""
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"] or LARGEST_ARGUMENT)
    except (redis.RedisError, KeyError):
        return LARGEST_ARGUMENT


def eviction_policy(client: redis.Redis) -> str:
    """`maxmemory-policy`, or `"unknown"` where a managed server hides it."""
    try:
        return str(client.info("memory").get("maxmemory_policy", "unknown"))
    except redis.RedisError:
        return "unknown"


@cache
def warn_of_eviction(policy: str) -> None:
    """Log, once in this process for each policy, what it means for messages that were acknowledged."""
    if policy == "unknown":
        log.info("redis_eviction policy=unknown: it should be noeviction, or Redis may drop what it acknowledged")
    elif policy.startswith("volatile-"):
        log.warning(
            "redis_eviction policy=%s: under memory pressure marks of unsettled batches may go, and with them "
            "the protection against duplicates; use noeviction",
            policy,
        )
    elif policy != "noeviction":
        log.warning(
            "redis_eviction policy=%s: under memory pressure delivered messages may be dropped; use noeviction", policy
        )
