"""Hides secrets in whatever a person may see. It would rather hide too much than too little."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

MASK: Final = "***"

_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|key(?!_converter)|credential|jaas", re.IGNORECASE)
_FILE_NAME: Final = re.compile(r"location|file|path|certs?$|bundle")
# Up to the last @ of the line: a password that was not percent-encoded may hold "@", "/" and spaces itself.
_USERINFO: Final = re.compile(r"(?<=://)([^\s/?#:@]*):.*@")
# A URL that was mistyped: it is no less secret.
_ALMOST_USERINFO: Final = re.compile(r":.*@")
_ALMOST_SETTING: Final = re.compile(r"(?i)^(\s*(?:pass|pwd|secret|token)\w*\s*:\s*)(?!//).+")
_SETTING: Final = r"((?:pass|pwd|secret|token)\w*\s*=\s*)"
_QUOTED: Final = r"""'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?"""
_IN_QUERY: Final = re.compile(rf"{_SETTING}(?:{_QUOTED}|[^\s&]+)", re.IGNORECASE)
_WORDS: Final = re.compile(rf"(=\s*)(?:{_QUOTED}|(?:\\.|\S)+)")
_IN_CONNINFO: Final = re.compile(rf"{_SETTING}(?:{_QUOTED}|(?:\\.|\S)+)", re.IGNORECASE)


def mask_url(text: str) -> str:
    """The text without the passwords of its URLs (`redis://:***@host`) and `key=value` connection strings."""
    if "=" in text:
        text = (_IN_QUERY if "://" in text else _IN_CONNINFO).sub(rf"\1{MASK}", text)
    if "://" in text:
        return _USERINFO.sub(rf"\1:{MASK}@", text)
    return _ALMOST_SETTING.sub(rf"\1{MASK}", _ALMOST_USERINFO.sub(f":{MASK}@", text))


def secret_name(name: str) -> bool:
    """Whether a setting or a variable of this name holds a secret: `sasl.password`, `DB_PASS`, `api_key`."""
    return _SECRET_NAME.search(name) is not None


def mask_wrong(names: Iterable[str], value: Any) -> Any:
    """As `mask_value`, for a value that was not understood: a URL's query, the words of a connection string, and the
    options of a client library may hold a secret under a mistyped name."""
    names = list(names)
    value = mask_value(names, value)
    if isinstance(value, dict):
        return {key: mask_wrong([*names, str(key)], inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [mask_wrong(names, inner) for inner in value]
    if "client" in names and not isinstance(value, bool) and not _FILE_NAME.search(names[-1]):
        return MASK
    if not isinstance(value, str):
        return value
    url = bool(names) and names[-1].endswith("url")
    if "://" in value or url:
        value = re.sub(r"\?.+", f"?{MASK}", value, flags=re.DOTALL)
    return _WORDS.sub(rf"\1{MASK}", value) if url and "://" not in value else value


def mask_value(names: Iterable[str], value: Any) -> Any:
    """A value without its secrets. `names`: what the setting, and the tables that it is in, are called."""
    names = list(names)
    if isinstance(value, dict):
        return {key: mask_value([*names, str(key)], inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_value(names, inner) for inner in value]
    if any(map(secret_name, names)) and value is not None and not isinstance(value, bool):
        return MASK
    return mask_url(value) if isinstance(value, str) else value
