"""Where configuration comes from: a TOML file, the environment over it, and what its strings refer to."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from relay.config.env import apply_environment
from relay.config.interpolation import BadReference, interpolate, look_up, show
from relay.config.masking import mask_value
from relay.config.tree import MISSING, KeyPath, find, spell
from relay.errors import ConfigError
from relay.config.interpolation import BadReference, interpolate, look_up, show
from relay.config.masking import mask_value, mask_wrong

DEFAULT_FILE: Final = Path("relay.toml")


class Sources:
    """The configuration as it was written, before anything is known about its meaning."""

    def __init__(
        self, file: str | None, tree: dict[str, Any], origins: Mapping[KeyPath, str], env: Mapping[str, str]
    ) -> None:
        self.file = file
        """The file's name as it was given; None where there is none."""
        self.problems: list[str] = []
        self._env = env
        self._origins = origins
        self._failed: set[KeyPath] = set()
        self.tree: dict[str, Any] = interpolate(tree, self._look_up)
        self._shown = interpolate(tree, lambda reference, _: show(reference, env), escape=False)

    def variable(self, path: KeyPath) -> str | None:
        """The environment variable that a path's value came from."""
        above = (path[:length] for length in range(len(path), 0, -1))
        return next((self._origins[place] for place in above if place in self._origins), None)

    def written(self, path: KeyPath) -> str | None:
        """The text of the environment variable that set exactly this path."""
        return self._env[self._origins[path]] if path in self._origins else None

    def shown(self, path: KeyPath) -> Any:
        """What was written at a path, for people: its secrets hidden. `MISSING` where nothing was."""
        value = find(self._shown, path)
        return value if value is MISSING else mask_value(setting_names(path), value)

    def problem(self, path: KeyPath, expected: str, got: str | None = None) -> None:
        """Note a problem as one line: where it came from, the key, what was expected, what came."""
        # A reference that leads nowhere is reported once; what its text would have meant is not known.
        if path in self._failed:
            return
        variable = self.variable(path)
        origin = f"environment {variable}" if variable else self.file or "configuration"
        line = f"{origin}: {spell(path)}: expected {expected}, got {self._got(path) if got is None else got}"
        self.problems.append(" ".join(line.splitlines()))

    def _got(self, path: KeyPath) -> str:
        value = find(self._shown, path)
        if value is not MISSING:
            value = mask_wrong(setting_names(path), value)
        text = "nothing" if value is MISSING else json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= 100 else f"{text[:100]}…"

    def _look_up(self, reference: str, path: KeyPath) -> str:
        try:
            return look_up(reference, self._env)
        except BadReference as error:
            self.problem(path, error.expected, error.got)
            self._failed.add(path)
            return f"${{{reference}}}"


def setting_names(path: KeyPath) -> list[str]:
    """The names in a path that may say "this is a secret": a sink may be called anything, its keys may not."""
    names = [part for part in path if isinstance(part, str)]
    return names[2:] if names[0] == "sinks" else names


def config_file(config: Path | None, env: Mapping[str, str]) -> Path:
    """The file that is read, and that `init` writes: `config`, else `RELAY_CONFIG`, else `./relay.toml`."""
    return config or Path(env.get("RELAY_CONFIG") or DEFAULT_FILE)


def read_sources(config: Path | None, env: Mapping[str, str], known: Mapping[str, Iterable[str]]) -> Sources:
    """Read the file and put the environment over it. `known`: the keys of each section, to suggest.

    Raises:
        ConfigError: the file cannot be read or is no TOML, or there is neither a file nor a database in `env`.
    """
    path = config_file(config, env)
    explicit = config is not None or bool(env.get("RELAY_CONFIG"))
    tree = _read(path) if explicit or path.exists() else None
    problems: list[str] = []
    merged: dict[str, Any] = tree or {}
    origins = apply_environment(merged, env, known, problems)
    if tree is None and ("database", "url") not in origins and ("database",) not in origins:
        problems.append(f"{path}: expected this file or RELAY_DATABASE_URL, got neither: `relay init` writes the file")
        raise ConfigError(problems)
    sources = Sources(None if tree is None else str(path), merged, origins, env)
    sources.problems[:0] = problems
    return sources


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: expected a readable file, got: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: expected UTF-8 text, got: {error.reason} at byte {error.start}"]) from error
    except ValueError as error:
        raise ConfigError([f"{path}: expected TOML, got: {error}"]) from error
