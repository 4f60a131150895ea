"""`${NAME}` (an environment variable) and `${file:/run/secrets/name}` (a file's content) in any configured string.

Inside a URL, and inside the `key=value` words of a PostgreSQL connection string, what a reference brings in is escaped
for the place where it stands, so that a password may hold any character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from relay.config.masking import MASK, secret_name
from relay.config.tree import KeyPath

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE: Final = "file:"
_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_WORD: Final = re.compile(r"(?:^|\s)\w+\s*=\s*'?$")


class BadReference(ValueError):
    """A reference that leads nowhere: what was expected of it, and what came."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected, self.got = expected, got


def interpolate(value: Any, resolve: Callable[[str, KeyPath], str], path: KeyPath = (), *, escape: bool = True) -> Any:
    """The value with the references of every string in it, at any depth, replaced by what `resolve` answers.

    `$${` stands for a plain `${`. What a reference brings in is not searched for references again.

    Args:
        escape: escape it for the place where it stands; False where the result is only shown.
    """
    if isinstance(value, dict):
        return {key: interpolate(inner, resolve, (*path, key), escape=escape) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, resolve, (*path, index), escape=escape) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        text = resolve(match[1], path)
        return _escaped(text, value[: match.start()], value[match.end() :], path) if escape else text

    return _REFERENCE.sub(replace, value)


def refers_to_file(value: Any) -> bool:
    """Whether any string in the value, at any depth, has a `${file:…}`."""
    if isinstance(value, dict | list):
        return any(map(refers_to_file, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and any((match[1] or "").startswith(_FILE) for match in _REFERENCE.finditer(value))


def _escaped(text: str, before: str, after: str, path: KeyPath) -> str:
    """A reference's text, fit for its place between the rest of the string."""
    # Other references stand for something; their own punctuation is none of the URL's.
    before, after = _REFERENCE.sub("x", before), _REFERENCE.sub("x", after)
    scheme = _SCHEME.match(before)
    if scheme:
        return _in_url(text, before[scheme.end() :], after)
    if path[:1] == ("database",) and _WORD.search(before):
        return re.sub(r"([\s'\\])", r"\\\1", text)
    return text


def _in_url(text: str, before: str, after: str) -> str:
    """A reference's text inside a URL; `before`: what precedes it after `://`."""
    if "?" in before or "#" in before:
        # Alone it may be several parameters.
        return text if before[-1] in "?&" else quote(text, safe="")
    if "/" in before:
        return quote(text, safe="/")
    if "@" in re.split(r"[/?#]", after)[0]:
        # Alone it may be a user and a password.
        return quote(text, safe="" if before or not after.startswith("@") else ":")
    return text  # A host, or several.


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
