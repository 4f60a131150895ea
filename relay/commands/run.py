"""`relay run`."""

from __future__ import annotations

import click

from relay.commands import Globals


@click.command()
@click.option("--sink", "sinks", multiple=True, metavar="S", help="Serve only this sink; may be repeated.")
@click.option("--drain", is_flag=True, help="Exit 0 once nothing is due or claimed.")
@click.option("--http", metavar="ADDR:PORT", help="Serve /healthz, /readyz and /metrics.")
@click.option("--grace", default="9s", show_default=True, help="How long a graceful stop may take.")
@click.pass_obj
def run(options: Globals, sinks: tuple[str, ...], drain: bool, http: str | None, grace: str) -> None:
    """Deliver messages until stopped.

    A first SIGTERM or Ctrl-C finishes what is claimed; a second one gives it back and leaves at once.
    """
    from relay.config.durations import parse_duration
    from relay.config.tree import nearest
    from relay.errors import UsageError
    from relay.process.service import Service
    from relay.telemetry.logs import configure

    settings = options.usable()
    for sink in sinks:
        if sink not in settings.shards:
            raise UsageError(
                f'--sink: expected a configured sink ({nearest(sink, list(settings.shards))}), got "{sink}"'
            )
    try:
        grace_s = parse_duration(grace)
    except ValueError as error:
        raise UsageError(f'--grace: expected {error}, got "{grace}"') from error
    configure(settings.log)
    Service(settings, options.usable, sinks, drain=drain, http=http, grace=grace_s).run()
