"""`relay init`, `relay config check`, `relay config show`."""

from __future__ import annotations

import json
import os
from importlib import resources
from typing import Any

import click

from relay.commands import Globals
from relay.errors import CheckFailed, UsageError

NEXT = """\
Wrote {file}. Next:
  1. edit it: database, sinks, routes    check with: relay config check
  2. relay migrate                       creates or upgrades the schema "relay"
  3. relay apply                         writes sinks and routes into the database
  4. relay run                           delivers"""


@click.command()
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
@click.pass_obj
def init(options: Globals, force: bool) -> None:
    """Write a commented relay.toml, and say what to do next."""
    from relay.config.sources import config_file

    file = config_file(options.config, os.environ)
    starter = resources.files("relay.config").joinpath("starter.toml").read_text(encoding="utf-8")
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(starter)
    except FileExistsError as error:
        raise UsageError(f"{file}: expected no such file, got one: --force overwrites it") from error
    except OSError as error:
        raise UsageError(f"{file}: expected a place to write to, got: {error.strerror}") from error
    click.echo(NEXT.format(file=file))


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@click.pass_obj
def check(options: Globals) -> None:
    """Print "ok", or all problems at once (exit code 2), or what is allowed and hardly meant (exit code 3)."""
    from relay.config.shares import share_gaps

    gaps = share_gaps(options.settings().routes)
    if gaps:
        raise CheckFailed("; ".join(gaps))
    click.echo("ok")


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document: a list of key, value, origin.")
@click.pass_obj
def show(options: Globals, as_json: bool) -> None:
    """Show every setting in effect, secrets masked, with where it came from."""
    from relay.config.effective import load_effective
    from relay.tables import print_table

    settings = load_effective(options.config, os.environ)
    if as_json:
        click.echo(json.dumps([setting._asdict() for setting in settings], indent=2, ensure_ascii=False, default=str))
        return
    print_table(("KEY", "VALUE", "ORIGIN"), [(key, _text(value), origin) for key, value, origin in settings])


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
