"""Which messages of a batch may be sent at all, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sinks.base import Message, Outcome
from sinks.sqs.entries import Entry
from sinks.sqs.errors import WAITS


def fitting(
    messages: Sequence[Message],
    made: Iterable[Entry | Outcome],
    refusal: Callable[[Entry], Outcome | None],
    *,
    ordered: bool,
) -> tuple[list[Entry], dict[int, Outcome]]:
    """The entries that may be sent, and the outcomes of all other messages, by position.

    Args:
        made: an entry for each message, or the outcome of one that cannot be sent.
        refusal: why an entry may not be sent; None: it may.
        ordered: whether a message that is not sent holds up the later ones of its key.
    """
    entries: list[Entry] = []
    outcomes: dict[int, Outcome] = {}
    stuck: set[str] = set()
    for position, (message, entry) in enumerate(zip(messages, made, strict=True)):
        if message.key in stuck:
            outcomes[position] = WAITS
            continue
        if isinstance(entry, Entry):
            refused = refusal(entry)
            if refused is None:
                entries.append(entry)
                continue
            entry = refused
        outcomes[position] = entry
        if ordered and message.key is not None:
            stuck.add(message.key)
    return entries, outcomes
