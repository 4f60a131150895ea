"""The answer of an asynchronous write. One that nobody awaits is an error: nothing was written, and the caller believes
that it was."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from relay.errors import UsageError

T_co = TypeVar("T_co", covariant=True)


class Awaited(Coroutine[Any, Any, T_co]):
    """As the coroutine `work`; when it is dropped without having begun, `spoil` is called and an error is raised.

    An error that is raised while an object is dropped is only printed (`sys.unraisablehook`), so `spoil` has to see to
    it that the transaction cannot be committed.
    """

    def __init__(self, work: Coroutine[Any, Any, T_co], spoil: Callable[[], None]) -> None:
        self._work = work
        self._spoil = spoil
        self._begun = False

    def __await__(self) -> Generator[Any, Any, T_co]:
        self._begun = True
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._work.send(value)

    def throw(self, *args: Any) -> Any:
        self._begun = True
        return self._work.throw(*args)

    def close(self) -> None:
        self._begun = True
        self._work.close()

    def __del__(self) -> None:
        if not self._begun:
            self.close()
            self._spoil()
            raise UsageError("a message was not written: `await` is missing; its transaction cannot be committed")
