"""Files that a broker's client needs, such as certificates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from sinks.base import BadClient


def check_files(options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse files that are not there: a library would find out when it connects.

    Raises:
        BadClient: an option of one of these names is the path of a file that cannot be read.
    """
    paths = {name: options.get(name) for name in names}
    missing = [name for name, path in paths.items() if isinstance(path, str) and not os.access(path, os.R_OK)]
    if missing:
        raise BadClient({name: f"a file that can be read at {paths[name]}" for name in missing})
