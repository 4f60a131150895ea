"""What the fenced script is to push for one batch, packed as its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from sinks.base import ARRIVED, Message, Outcome, Reject, Retry
from sinks.envelopes.envelope import BadEnvelope
from sinks.redis.connection import Argument, bulk, bulks
from sinks.redis.errors import BEFORE, BEHIND, outcome_of
from sinks.template import TemplateError

AT_ONCE: Final = 1000
"""Messages in one command: as many as Sidekiq pushes at once. Lua hands about 8,000 arguments to a function."""


class Unsendable(Exception):
    """No operator could make Redis, or its reader, take this message. The text says why, without its data."""


def check_size(data: bytes, largest: int) -> None:
    """Refuse what the server would answer by closing the connection, which looks like an outage.

    Raises:
        Unsendable: `data` has more than `largest` bytes.
    """
    if len(data) > largest:
        raise Unsendable(f"too large: {len(data)} bytes, and this Redis takes {largest} (proto-max-bulk-len)")


class Command:
    """What pushes messages to one key: the command up to where the messages' own arguments begin.

    Args:
        key: where it pushes to, as its failures name it.
        needs: a command to run before it, which must succeed too.
        many: it takes the arguments of several messages at once.
    """

    __slots__ = ("arguments", "key", "many", "packed")

    def __init__(self, key: str, *command: Argument, needs: Sequence[Argument] = (), many: bool = False) -> None:
        condition: list[Argument] = [len(needs), *needs, 0, 0] if needs else []
        arguments = [*condition, len(command), *command]
        self.key = key
        self.many = many
        self.packed = bulks(arguments)
        self.arguments = len(arguments)


Push = tuple[Command, bytes, int]
"""One message's part of a command: packed arguments, and how many they are; that number is the same for all messages
of a command that takes many."""


class _Group:
    """Messages that one command pushes."""

    __slots__ = ("command", "ids", "packed", "width")

    def __init__(self, command: Command, width: int) -> None:
        self.command = command
        self.width = width
        self.ids: list[int] = []
        self.packed: list[bytes] = []


def _refusal(error: Exception) -> Outcome:
    if isinstance(error, (Unsendable, TemplateError, BadEnvelope)):
        return Reject(str(error))
    # Only the class: a foreign text may quote the message's data.
    return Retry(f"it could not be written: {type(error).__name__}")


class Part:
    """What one call of the script pushes: all of a batch, or in a cluster what goes to one slot."""

    def __init__(self, groups: Sequence[_Group], refused: Sequence[int], key_numbers: Mapping[int, int] | None) -> None:
        self.ids = [message_id for group in groups for message_id in group.ids]
        """Of the messages that are pushed, in that order."""
        self.refused = refused
        """Of the messages that are not pushed at all."""
        self.key_numbers = [key_numbers[message_id] for message_id in self.ids] if key_numbers is not None else []
        """For each of `ids`, a number that stands for its key; 0: none. Empty where order is not asked for."""
        self.keys = list(dict.fromkeys(group.command.key for group in groups))
        """Where it pushes to."""
        self.packed: list[bytes] = []
        self.arguments = 0
        for group in groups:
            count = len(group.ids)
            self.packed += [group.command.packed, bulk(count), bulk(group.width), *group.packed]
            self.arguments += group.command.arguments + 2 + count * group.width


class Plan:
    """The pushes of one batch, grouped by command; for an ordered sink one by one, in id order."""

    def __init__(
        self,
        messages: Sequence[Message],
        push: Callable[[Message], Push],
        *,
        ordered: bool,
        withdrawn: frozenset[int] = frozenset(),
    ) -> None:
        self.refused: dict[int, Outcome] = {}
        """Messages that are not pushed at all, by id."""
        self._withdrawn: dict[int, str] = {}
        """Where those were pushed to that are not pushed any more, by id."""
        self._groups: list[_Group] = []
        if withdrawn:
            self._withdraw([message for message in messages if message.id in withdrawn], push)
            messages = [message for message in messages if message.id not in withdrawn]
        self._collect(messages, push, ordered)
        self._key_numbers = _numbers(messages) if ordered else None

    def whole(self) -> Part:
        return Part(self._groups, list(self.refused), self._key_numbers)

    def parts(self, slot_of: Callable[[str], int]) -> dict[int, Part]:
        """One for each slot that something is pushed to, or was so before; what else is refused is in none."""
        groups: dict[int, list[_Group]] = {}
        for group in self._groups:
            groups.setdefault(slot_of(group.command.key), []).append(group)
        withdrawn: dict[int, list[int]] = {}
        for message_id, key in self._withdrawn.items():
            withdrawn.setdefault(slot_of(key), []).append(message_id)
        slots = [*groups, *(slot for slot in withdrawn if slot not in groups)]
        return {slot: Part(groups.get(slot, []), withdrawn.get(slot, []), self._key_numbers) for slot in slots}

    def outcome(self, message_id: int, error: str) -> Outcome:
        """The outcome of a message that the script lists with `error`."""
        if error == BEFORE:
            return ARRIVED
        if message_id in self.refused:
            return self.refused[message_id]
        return outcome_of(error, self.destination(message_id))

    def destination(self, message_id: int) -> str:
        """Where a message is pushed to."""
        return self._destinations.get(message_id) or self._withdrawn.get(message_id, "")

    @cached_property
    def _destinations(self) -> dict[int, str]:
        return {message_id: group.command.key for group in self._groups for message_id in group.ids}

    def _withdraw(self, messages: Sequence[Message], push: Callable[[Message], Push]) -> None:
        for message in messages:
            self.refused[message.id] = Reject("given up")
            # What cannot be written now could not before either, so there is no place to ask.
            with suppress(Exception):
                self._withdrawn[message.id] = push(message)[0].key

    def _collect(self, messages: Sequence[Message], push: Callable[[Message], Push], ordered: bool) -> None:
        groups: dict[Command, _Group] = {}
        stuck: set[str | None] = set()
        for message in messages:
            if message.key in stuck:
                self.refused[message.id] = outcome_of(BEHIND, "")
                continue
            try:
                command, packed, width = push(message)
            except Exception as error:  # noqa: BLE001 - what one message raises must not stop its neighbours
                self.refused[message.id] = _refusal(error)
                if ordered and message.key is not None:
                    stuck.add(message.key)
                continue
            group = groups.get(command)
            if group is None or len(group.ids) == AT_ONCE:
                group = _Group(command, width)
                self._groups.append(group)
                if command.many and not ordered:
                    groups[command] = group
            group.ids.append(message.id)
            group.packed.append(packed)


def _numbers(messages: Sequence[Message]) -> dict[int, int]:
    """For each message's id a number that stands for its key; 0: none."""
    numbers: dict[str | None, int] = {None: 0}
    return {message.id: numbers.setdefault(message.key, len(numbers)) for message in messages}
