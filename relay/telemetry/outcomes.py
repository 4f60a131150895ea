"""What the log says of a batch whose outcomes are written."""

from __future__ import annotations

import logging

import structlog

from relay.claims.claim import Claim, Verdict
from sinks.base import Message

log = structlog.get_logger("relay")


def tell(claim: Claim, verdict: Verdict) -> None:
    """One line for each dead message, and one for all others that are not simply delivered. At level debug a line for
    each that is."""
    sink = claim.sink
    if logging.getLogger("relay").isEnabledFor(logging.DEBUG):
        for message in (claim.messages[position] for position in verdict.delivered):
            log.debug("message delivered", sink=sink, **_who(message), attempts=message.attempts)
    if verdict.dead:
        known = {message.id: _who(message) for message in claim.messages}
        for number, reason in verdict.dead:
            log.warning("message is dead", sink=sink, **known.get(number, {"id": number}), reason=reason)
    for name, finding in verdict.destinations.items():
        if finding.news and finding.works:
            log.info("destination works again", sink=sink, name=name)
        elif finding.news and finding.parked:
            # Who is behind it sees no open circuit and no dead message, only that they wait.
            log.warning("destination is unavailable", sink=sink, name=name, reason=finding.reason)
    for message in verdict.arrived[:1]:
        log.info("had arrived before, not sent again", sink=sink, count=len(verdict.arrived), first_id=message.id)
    failed = verdict.failed()
    for message_id, reason in failed[:1]:
        log.info("messages failed", sink=sink, count=len(failed), first_id=message_id, reason=reason)


def _who(message: Message) -> dict[str, int | str]:
    """What tells a message from all others, here and at its consumer."""
    return {"id": message.id, "message_id": str(message.message_id), "kind": message.kind}
