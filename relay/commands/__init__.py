"""The sub-commands, one module each; `relay.cli` imports a module when its command is called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.settings import Settings


@dataclass
class Globals:
    """The options of every command. A command gets them with `@click.pass_obj`."""

    config: Path | None = None
    debug: bool = False

    def settings(self) -> Settings:
        """The configuration.

        Raises:
            ConfigError: with every problem that it has.
        """
        # Imported here because pydantic and psycopg take longer than `--help` may.
        from relay.settings import load

        return load(self.config, os.environ)
