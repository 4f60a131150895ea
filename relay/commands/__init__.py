"""The sub-commands: options and output, one module each; `relay.cli` imports a module when its command is called. What
they share is in `common.py`, the place to read first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.config.settings import BaseSettings, Settings


@dataclass
class Globals:
    """The options of every command. A command gets them with `@click.pass_obj`."""

    config: Path | None = None
    debug: bool = False

    def base(self) -> BaseSettings:
        """The configuration, as far as a command needs it that talks to no broker.

        Raises:
            ConfigError: with every problem that this part has.
        """
        # Imported here because pydantic and psycopg take longer than `--help` may.
        from relay.config.settings import load_base

        return load_base(self.config, os.environ)

    def settings(self, *, clients: bool = True) -> Settings:
        """The whole configuration.

        Args:
            clients: whether the brokers' libraries check their own options, too.

        Raises:
            ConfigError: with every problem that it has.
        """
        from relay.config.settings import load

        return load(self.config, os.environ, clients=clients)

    def usable(self) -> Settings:
        """The configuration without the sinks that cannot be used, each of them with the reason.

        Raises:
            ConfigError: something is wrong that is not about one sink.
        """
        from relay.config.settings import load_usable

        return load_usable(self.config, os.environ)
