"""`relay demo`."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--messages",
    type=click.IntRange(100, 100_000),
    default=6000,
    show_default=True,
    help="How many are written, those that are rolled back included.",
)
def demo(messages: int) -> None:
    """See it all work on servers of its own.

    Messages are written by several connections at once and delivered to a Redis stream, Sidekiq queues, Kafka and SQS;
    one relay is killed on the way. At the end a table says what the brokers really hold. Everything that was started is
    stopped, and nothing stays.
    """
    from relay.demo.processes import interrupt_once
    from relay.demo.scene import run

    interrupt_once()
    run(messages)
