"""Sidekiq: one job a message, pushed as Sidekiq's own client pushes it (versions 6.4 to 8.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sinks.base import Batch, Message
from sinks.redis.connection import bulk
from sinks.redis.fence import RedisOptions, RedisSink
from sinks.redis.plan import Command, Push, Unsendable, check_size
from sinks.redis.sidekiq_job import QUEUE_NAMES, JobWriter, attributes, is_queue_name, scheduled_at
from sinks.redis.url import SidekiqUrl
from sinks.template import Template


def _possible(queue: Template) -> Template:
    if not all(map(is_queue_name, queue.literals)):
        raise ValueError(QUEUE_NAMES)
    return queue


def _not_below_zero(retry: Any) -> Any:
    if not isinstance(retry, bool) and isinstance(retry, int) and retry < 0:
        raise ValueError("true, false or a number of retries")
    return retry


class SidekiqOptions(RedisOptions):
    """Configuration keys of `type = "sidekiq"`."""

    url: SidekiqUrl
    """One server or Sentinel: Sidekiq's keys are in different slots, so it does not work on a cluster."""
    queue: Annotated[Template, AfterValidator(_possible)] = Template("{header.queue:default}")
    """The queue's name; a `queue` in the message's header `sidekiq` comes first."""
    namespace: str | None = Field(default=None, min_length=1)
    """Prefix of every key, as the redis-namespace gem made it for Sidekiq up to 6."""
    active_job: bool = False
    """Whether kinds are ActiveJob classes, to be wrapped as Rails' adapter does."""
    retry: Annotated[bool | int, BeforeValidator(_not_below_zero)] = True
    """As Sidekiq's job option: true (25 times), false, or how often."""
    schedule: Literal["relay", "sidekiq"] = "relay"
    """Who waits for `run_at`: the relay, or Sidekiq in its own schedule, where its Web UI shows the job."""


class SidekiqSink(RedisSink):
    """Pushes messages as jobs."""

    Options = SidekiqOptions
    cluster_refusal = "a node of a Redis Cluster, and Sidekiq does not work on one: it needs one server, or Sentinel"
    hand_over_s = 2**31 - 1

    def fingerprint(self) -> str:
        options: SidekiqOptions = self.config.options
        return f"{self.place} sidekiq {options.namespace or ''} queue {options.queue}"

    def destination(self, message: Message) -> str | None:
        if "relay.at" in message.headers:
            return None
        options: SidekiqOptions = self.config.options
        prefix = f"{options.namespace}:" if options.namespace else ""
        queue = attributes(message.headers).get("queue") or options.queue.render(message, self.config.name)
        return f"{prefix}queue:{queue}"

    def pusher(self, batch: Batch) -> Callable[[Message], Push]:
        options: SidekiqOptions = self.config.options
        sink, largest, claimed_us = self.config.name, self.fence.largest_argument, batch.claimed_us
        prefix = f"{options.namespace}:" if options.namespace else ""
        jobs = JobWriter(claimed_us, options.retry, active_job=options.active_job)
        schedule = Command(f"{prefix}schedule", "ZADD", f"{prefix}schedule", many=True)
        queues: dict[str, Command] = {}

        def push(message: Message) -> Push:
            asked = attributes(message.headers)
            at = scheduled_at(message.headers, claimed_us)
            queue = asked.get("queue") or options.queue.render(message, sink)
            if queue not in queues and not is_queue_name(queue):
                raise Unsendable(f'"{options.queue}" gives a name that is refused; expected {QUEUE_NAMES}')
            job = jobs.write(message, queue, asked, scheduled=at is not None)
            check_size(job, largest)
            if at is not None:
                return schedule, bulk(repr(at)) + bulk(job), 2
            command = queues.get(queue)
            if command is None:
                command = queues[queue] = _lpush(prefix, queue)
            return command, bulk(job), 1

        return push


def _lpush(prefix: str, queue: str) -> Command:
    key = f"{prefix}queue:{queue}"
    return Command(key, "LPUSH", key, needs=("SADD", f"{prefix}queues", queue), many=True)
