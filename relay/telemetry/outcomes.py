"""What the log says of a batch whose outcomes are written."""

from __future__ import annotations

import structlog

from relay.claims.claim import Verdict

log = structlog.get_logger("relay")


def tell(sink: str, verdict: Verdict) -> None:
    """One line for each dead message, and one for all others that are not simply delivered."""
    for message_id, reason in verdict.dead:
        log.warning("message is dead", sink=sink, id=message_id, reason=reason)
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
