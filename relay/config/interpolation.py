"""`${NAME}` (an environment variable) and `${file:/run/secrets/name}` (a file's content) in any configured string."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from relay.config.masking import MASK, secret_name
from relay.config.tree import KeyPath

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE: Final = "file:"


class BadReference(ValueError):
    """A reference that leads nowhere: what was expected of it, and what came."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected, self.got = expected, got


def interpolate(value: Any, resolve: Callable[[str, KeyPath], str], path: KeyPath = ()) -> Any:
    """The value with the references of every string in it, at any depth, replaced by what `resolve` answers.

    `$${` stands for a plain `${`. What a reference brings in is not searched for references again.
    """
    if isinstance(value, dict):
        return {key: interpolate(inner, resolve, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, resolve, (*path, index)) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    return _REFERENCE.sub(lambda match: "${" if match[1] is None else resolve(match[1], path), value)


def look_up(reference: str, env: Mapping[str, str]) -> str:
    """What a reference stands for.

    Raises:
        BadReference: the variable is not set, the file cannot be read, or it is neither.
    """
    if reference.startswith(_FILE):
        return _read(reference.removeprefix(_FILE))
    if not _NAME.fullmatch(reference):
        raise BadReference("${NAME} or ${file:/path} ($${ for a plain ${)", f"${{{reference}}}")
    if reference not in env:
        raise BadReference(f"the environment variable {reference} to be set", "nothing")
    return env[reference]


def show(reference: str, env: Mapping[str, str]) -> str:
    """What a reference stands for, or `***`: files and variables named like secrets are not shown."""
    secret = reference.startswith(_FILE) or secret_name(reference)
    return MASK if secret else env.get(reference, f"${{{reference}}}")


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise BadReference(f"a readable file {name}", reason or "no UTF-8 text") from error
