"""Configuration keys from the environment: `RELAY_DATABASE_URL`, `RELAY_SINKS__ORDERS__WORKERS`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from typing import Any, Final

from relay.config.tree import MISSING, KeyPath, find, nearest, put, spell

PREFIX: Final = "RELAY_"
SECTIONS: Final = ("database", "sinks", "routes", "log")

_OTHERS: Final = ("RELAY_CONFIG",)
_FLAT: Final = ("database", "log")
# What Kubernetes puts into every pod beside a service called "relay" or "relay-…" (its "service links").
_SERVICE_LINK: Final = re.compile(r"RELAY_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def apply_environment(
    tree: dict[str, Any], env: Mapping[str, str], known: Mapping[str, Iterable[str]], problems: list[str]
) -> dict[KeyPath, str]:
    """Write the environment's values over the file's, in place.

    Args:
        known: the keys of each section (of one sink, for `sinks`), to suggest where a name is wrong.

    Returns:
        The name of the variable that set each path.
    """
    origins: dict[KeyPath, str] = {}
    for name in _names(env):
        path = _path(tree, name)
        taken = origins.get(path)
        if not path:
            problem = f"a known name ({nearest(name, _known_names(tree, known))}), got an unknown one"
        elif taken:
            problem = f"one variable for {spell(path)}, got {taken} as well"
        elif _unknown_sink(tree, path):
            problem = f'a configured sink ({nearest(str(path[1]), _sinks(tree))}), got "{path[1]}"'
        else:
            try:
                put(tree, path, parse_value(env[name]))
                origins[path] = name
                continue
            except ValueError as error:
                problem = f"{error}, got something else"
        problems.append(f"environment {name}: expected {problem}")
    return origins


def parse_value(text: str) -> Any:
    """The value as TOML, or a JSON object or array, or else the text itself."""
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:
        return _parse_json(text)
    if list(document) != ["value"] or isinstance(document["value"], (date, time)):
        return text
    return document["value"]


def _parse_json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _names(env: Mapping[str, str]) -> Iterator[str]:
    """Our variables: whole tables before the keys in them, and a new sink's type before its other keys."""
    ours = [
        name
        for name in env
        if name.startswith(PREFIX) and name not in _OTHERS
        if not ("KUBERNETES_SERVICE_HOST" in env and _SERVICE_LINK.fullmatch(name))
    ]
    return iter(sorted(ours, key=lambda name: (name.count("__"), not name.endswith("__TYPE"), name)))


def _path(tree: dict[str, Any], name: str) -> KeyPath:
    """The key that a variable sets; empty where it names none."""
    rest = name.removeprefix(PREFIX).lower()
    for section in _FLAT:
        rest = re.sub(f"^{section}_(?!_)", f"{section}__", rest)
    if rest.split("__")[0] not in SECTIONS:
        return ()
    path: KeyPath = ()
    node: Any = dict.fromkeys(SECTIONS) | tree
    while rest:
        part, rest = _step(node, rest)
        if isinstance(node, list) and find(node, (part,)) is MISSING:
            return ()
        path += (part,)
        node = find(node, (part,))
    return path


def _step(node: Any, rest: str) -> tuple[str | int, str]:
    """The first key that `rest` names, spelled as it is configured already where it is, and what remains."""
    # Longest first: a sink's own name may hold "__".
    for key in sorted(node, key=len, reverse=True) if isinstance(node, dict) else ():
        folded = re.sub(r"[-.]", "_", key.lower())
        if rest == folded or rest.startswith(f"{folded}__"):
            return key, rest[len(folded) + 2 :]
    head, _, tail = rest.partition("__")
    return int(head) if isinstance(node, list) and head.isdecimal() else head, tail


def _unknown_sink(tree: dict[str, Any], path: KeyPath) -> bool:
    """Whether a variable is about a sink that nothing has configured. `…__TYPE` and `RELAY_SINKS__NAME` make one."""
    if path[0] != "sinks" or len(path) < 3 or path[2] == "type":
        return False
    return find(tree, path[:2]) is MISSING


def _sinks(tree: dict[str, Any]) -> list[str]:
    sinks = tree.get("sinks")
    return list(sinks) if isinstance(sinks, dict) else []


def _known_names(tree: dict[str, Any], known: Mapping[str, Iterable[str]]) -> list[str]:
    keys = [f"{section}_{key}" for section in _FLAT for key in known[section]]
    keys += [f"sinks__{sink}__{key}" for sink in _sinks(tree) for key in known["sinks"]]
    return [*_OTHERS, *(PREFIX + re.sub(r"[-.]", "_", key).upper() for key in [*keys, "sinks", "routes"])]
