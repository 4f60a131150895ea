"""The command `relay`: finds the sub-command, and turns every error into its line and exit code.

Sub-commands are imported when they are called, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import click

from relay.commands import Globals
from relay.errors import RelayError

FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Lazy(NamedTuple):
    """Where a sub-command is (`module:attribute`), and its line in `relay --help`."""

    place: str
    help: str


COMMANDS: Final = {
    "init": Lazy("config:init", "Write a commented relay.toml."),
    "migrate": Lazy("schema:migrate", 'Create or upgrade the schema "relay".'),
    "grants": Lazy("schema:grants", "Print the rights of the two group roles, as SQL."),
    "apply": Lazy("apply:apply", "Write the file's sinks and routes into the database."),
    "config": Lazy("config:config", "Check or show the configuration."),
    "run": Lazy("run:run", "Deliver messages until stopped."),
    "status": Lazy("status:status", "Show what waits, for each sink."),
    "dead": Lazy("dead:dead", "List, show, requeue or discard messages that were given up."),
    "pause": Lazy("pause:pause", "Stop deliveries to a sink."),
    "resume": Lazy("pause:resume", "Go on with deliveries to a sink."),
    "keys": Lazy("keys:keys", "List and release keys whose messages wait for an earlier one."),
    "reshard": Lazy("reshard:reshard", "Change the number of a sink's shards."),
    "publish": Lazy("write:publish", "Write a message."),
    "enqueue": Lazy("write:enqueue", "Write a job."),
    "demo": Lazy("demo:demo", "See it all work on servers of its own."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].place.partition(":")
        command: click.Command = getattr(import_module(f"relay.commands.{module}"), attribute)
        _add_global_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from relay.config.tree import nearest

            ctx.fail(f'expected a command ({nearest(args[0], list(COMMANDS))}), got "{args[0]}"')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(Globals), str(param.name), value)


def _global_options(hidden: bool) -> list[click.Option]:
    file = click.Path(path_type=Path)
    return [
        click.Option(
            ["--config"],
            type=file,
            metavar="FILE",
            help="Configuration file; else RELAY_CONFIG, else ./relay.toml.",
            expose_value=False,
            is_eager=True,
            callback=_remember,
            hidden=hidden,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Show the traceback of an error.",
            expose_value=False,
            is_eager=True,
            callback=_remember,
            hidden=hidden,
        ),
    ]


def _add_global_options(command: click.Command) -> None:
    """Let `relay run --config FILE` mean `relay --config FILE run`."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _add_global_options(inner)
    taken = {name for param in command.params for name in param.opts}
    command.params += [option for option in _global_options(hidden=True) if option.opts[0] not in taken]


@click.command(
    cls=LazyGroup,
    params=_global_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Forward messages from a PostgreSQL table to Redis, Sidekiq, Kafka or SQS.",
)
@click.version_option(package_name="outbox-relay", message="%(prog)s %(version)s")
def cli() -> None:
    pass


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; exits the process.

    A command ends by returning, by `ctx.exit(code)` or by raising a `RelayError`.
    """
    _open_closed_streams()
    options = Globals()
    try:
        code = cli.main(args, prog_name="relay", obj=options, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort as error:
        interrupted = isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
        _say("Interrupted." if interrupted else "Error: stopped at a question; nothing was changed.")
        code = 130 if interrupted else 1
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        # The reader went away (`relay config show | head`).
        _drop_output()
        code = 1
    except Exception as error:  # noqa: BLE001  (the last resort: whatever is left becomes one line)
        if isinstance(error, OSError) and error.errno in FULL:
            _drop_output()
            error = RelayError(f"cannot write the output: {error.strerror}")
        code = _report(error, debug=options.debug)
    sys.exit(code if isinstance(code, int) else 0)


def _open_closed_streams() -> None:
    """Python has None for a stream that is closed (`>&-`), and the next socket would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (until the process ends)


def _drop_output() -> None:
    """Python would try to write the rest, and complain once more, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception, *, debug: bool) -> int:
    """Say what failed, on standard error; return the exit code."""
    if debug:
        import traceback

        traceback.print_exception(error)
    from relay.config.masking import mask_url
    from relay.errors import ConfigError

    if isinstance(error, ConfigError):
        for problem in error.problems:
            _say(problem)
        return error.exit_code
    text = mask_url("; ".join(filter(None, map(str.strip, str(error).splitlines()))))
    if isinstance(error, RelayError):
        _say(f"Error: {text}")
        return error.exit_code
    _say(f"Error: {type(error).__name__}: {text} (a fault of relay itself; --debug shows where)")
    return 1


def _say(text: str) -> None:
    click.echo(text, err=True)
