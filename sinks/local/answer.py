"""An outcome as text, on its way from a child process to the relay: the application's objects stay in the child."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from sinks import base

_CLASSES: Final[dict[str, type[base.Outcome]]] = {
    "delivered": base.Delivered,
    "retry": base.Retry,
    "reject": base.Reject,
    "hold": base.Hold,
}
_NAMES: Final = {outcome: name for name, outcome in _CLASSES.items()}


def dump(outcome: base.Outcome, traceback: str | None) -> bytes:
    """As `load` reads it."""
    facts = {"outcome": _NAMES[type(outcome)], "fields": asdict(outcome), "traceback": traceback}
    return json.dumps(facts).encode()


def load(answer: bytes) -> tuple[base.Outcome, str | None]:
    """The outcome, and the traceback of what the handler raised.

    Raises:
        ValueError: this is no answer.
    """
    try:
        facts = json.loads(answer)
        return _CLASSES[facts["outcome"]](**facts["fields"]), facts["traceback"]
    except (KeyError, TypeError) as error:
        raise ValueError("no outcome") from error
