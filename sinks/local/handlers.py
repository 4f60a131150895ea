"""Handlers: which function takes a kind of message, how it is imported, and what became of calling it."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from inspect import isawaitable
from pathlib import Path
from traceback import FrameSummary, extract_tb, format_exception
from typing import Any, Final

from sinks import base
from sinks.local.message import Hold, Message, Reject, Retry

Handler = Callable[[Message], Any]
Wait = Callable[[Coroutine[Any, Any, BaseException | None]], BaseException | None]
"""Runs `settled` on an event loop."""

log = logging.getLogger("sinks.local")

REFERENCE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class NotImportable(Exception):
    """A handler cannot be had. The text says which one, and why."""


class Kinds:
    """Finds the handler of a kind: its own, else that of the first pattern that matches.

    Args:
        handlers: `module:function` by kind; in a kind, * stands for any run of characters, ? for one.
    """

    def __init__(self, handlers: Mapping[str, str]) -> None:
        self._exact = dict(handlers)
        self._patterns = [(_pattern(kind), name) for kind, name in handlers.items() if {"*", "?"} & {*kind}]

    def handler(self, kind: str) -> str | None:
        """`module:function`; None where nothing matches."""
        exact = self._exact.get(kind)
        return exact or next((name for pattern, name in self._patterns if pattern.fullmatch(kind)), None)


def _pattern(kind: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(character) or re.escape(character) for character in kind), re.DOTALL)


def load(names: Iterable[str]) -> dict[str, Handler]:
    """Import functions, from the current directory as well.

    Raises:
        NotImportable: one of them cannot be had.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    # A module may have appeared since a first try failed.
    importlib.invalidate_caches()
    return {name: _load(name) for name in sorted(set(names))}


def _load(name: str) -> Handler:
    module, _, attributes = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise NotImportable(f"handler {name}: {type(error).__name__}: {error}") from error
    except BaseException as error:
        raise NotImportable(f"handler {name}: {described(error)}") from error
    if not callable(found):
        raise NotImportable(f"handler {name}: expected a function, got {type(found).__name__}")
    handler: Handler = found
    return handler


class OnError:
    """Who gets the traceback of what a handler raises. It may quote a payload, so nobody does unless asked.

    Args:
        say: called with the message's kind and the text.
        wanted: whether to make it at all.
    """

    def __init__(self, say: Callable[[str, str], None], *, wanted: bool) -> None:
        self._say = say
        self.wanted = wanted

    def __call__(self, kind: str, error: BaseException | str) -> None:
        if self.wanted:
            text = error if isinstance(error, str) else "".join(format_exception(error))
            self._say(kind, text)


def call(handler: Handler, message: base.Message, wait: Wait, on_error: OnError) -> base.Outcome:
    """Call a handler; whatever it raises is an outcome."""
    error: BaseException | None = None
    try:
        result = handler(Message(message))
        if isawaitable(result):
            error = wait(settled(result))
    except BaseException as raised:  # noqa: BLE001 - sys.exit() in a job must not end the relay
        error = raised
    if error is None:
        return base.DELIVERED
    outcome = _asked_for(error, message.kind)
    if outcome is None:
        on_error(message.kind, error)
        outcome = base.Retry(described(error))
    return outcome


def _asked_for(error: BaseException, kind: str) -> base.Outcome | None:
    """What the handler asked for by raising this; None where it just failed."""
    try:
        match error:
            case Retry():
                return base.Retry(_text(error.reason), float(error.after))
            case Reject():
                return base.Reject(_text(error.reason))
            case Hold():
                return base.Hold(_text(error.reason), kind)
            case _:
                return None
    except Exception:  # noqa: BLE001 - a subclass of the application's may lack what ours set
        log.warning("handler for kind %s raised a %s whose reason cannot be read", kind, type(error).__name__)
        return None


def _text(reason: object) -> str:
    """A reason may be any object of the application's, such as its own exception; outside it is text."""
    return "".join(str(reason))


async def settled(awaitable: Awaitable[Any]) -> BaseException | None:
    """Wait for it; what it raised. Some of what may be raised would end the event loop."""
    try:
        await awaitable
    except BaseException as error:  # noqa: BLE001 - as above
        return error
    return None


def described(error: BaseException) -> str:
    """The exception's type and where it came from. Not its text: that may quote a payload."""
    ours = {__file__, importlib.__file__}
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename not in ours]
    places = list(dict.fromkeys(_place(frame) for frame in frames if not frame.filename.startswith("<")))
    if not places:
        return type(error).__name__
    return f"{type(error).__name__} at {places[0]}" + (f", from {places[-1]}" if len(places) > 1 else "")


def _place(frame: FrameSummary) -> str:
    path = Path(frame.filename)
    try:
        path = path.relative_to(Path.cwd())
    except ValueError:
        path = Path(*path.parts[-2:])
    return f"{path}:{frame.lineno}"
