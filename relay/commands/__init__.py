"""The sub-commands: options and output, one module each; `relay.cli` imports a module when its command is called. What
they share is in `common.py`, the place to read first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.config.settings import Settings


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
        from relay.config.settings import load

        return load(self.config, os.environ)
