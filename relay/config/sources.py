"""Where configuration comes from: a TOML file, the environment over it, and what its strings refer to."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from relay.config.env import apply_environment
from relay.config.interpolation import BadReference, interpolate, look_up, refers_to_file, show
from relay.config.masking import mask_value, mask_wrong
from relay.config.tree import MISSING, KeyPath, find, put, spell
from relay.errors import ConfigError

DEFAULT_FILE: Final = Path("relay.toml")


class Sources:
    """The configuration as it was written, before anything is known about its meaning.

    What a string refers to is looked up by `resolve` only: a command that needs no broker reads no broker's secrets.
    """

    def __init__(
        self, file: str | None, tree: dict[str, Any], origins: Mapping[KeyPath, str], env: Mapping[str, str]
    ) -> None:
        self.file = file
        """The file's name as it was given; None where there is none."""
        self.problems: list[str] = []
        self._env = env
        self._origins = origins
        self._failed: set[KeyPath] = set()
        self._written = tree
        self.tree: dict[str, Any] = deepcopy(tree)
        self._shown = interpolate(tree, lambda reference, _: show(reference, env), escape=False)

    def copy(self) -> Sources:
        """The same as it was written, with nothing looked up yet."""
        return Sources(self.file, self._written, self._origins, self._env)

    def resolve(self, path: KeyPath) -> None:
        """Look up what the strings at a path, at any depth, refer to. Where one leads nowhere, that is a problem."""
        value = find(self.tree, path)
        if value is not MISSING:
            put(self.tree, path, interpolate(value, self._look_up, path))

    def again(self, path: KeyPath) -> Any:
        """What is written at a path with its references looked up now; `MISSING` where nothing is.

        Raises:
            BadReference: one leads nowhere.
        """
        value = find(self._written, path)
        return value if value is MISSING else interpolate(value, lambda name, _: look_up(name, self._env), path)

    def refers_to_file(self, path: KeyPath) -> bool:
        """Whether anything at a path comes from a file, so that it may be another now."""
        return refers_to_file(find(self._written, path))

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
        origin = self._origin(path)
        line = f"{origin}: {spell(path)}: expected {expected}, got {self._got(path) if got is None else got}"
        self.problems.append(" ".join(line.splitlines()))

    def _origin(self, path: KeyPath) -> str:
        variable = self.variable(path)
        if variable:
            return f"environment {variable}"
        table = find(self._written, path[:2])
        if path[0] == "sinks" and isinstance(table, dict) and table:
            # A key is missing of a sink that only the environment has: no file is to blame.
            variables = [self.variable((*path[:2], key)) for key in table]
            if all(variables):
                return f"environment {min(filter(None, variables), key=len).rpartition('__')[0]}__…"
        return self.file or "configuration"

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
