"""What the errors of one batch say of its calls to come."""

from __future__ import annotations

from sinks.base import Hold, Outcome, SinkUnavailable
from sinks.sqs.errors import ACCOUNT_WIDE, Cause, Refused, SqsError, describe, hold


class Trouble:
    """Remembers what stands in the way, of one queue or of all."""

    def __init__(self) -> None:
        self.stopped: Hold | None = None
        """Why nothing is called any more."""
        self.unwell: dict[str, Outcome] = {}
        """Why a queue is not called any more."""
        self.unavailable: SinkUnavailable | None = None
        """What to raise where nothing else is known of the batch."""
        self.bad_credentials = False

    def refused(self, error: Refused, queue: str) -> Hold:
        """SQS said no; return what that means for the messages that it said no to."""
        outcome = hold(error, queue)
        if error.cause is Cause.UNWELL:
            # It may have failed after it had taken the messages.
            self.unavailable = SinkUnavailable(outcome.reason, unknown=True)
        if error.cause is Cause.AUTH:
            self.bad_credentials = True
        if error.cause in ACCOUNT_WIDE:
            self.stopped = outcome
        else:
            self.unwell[queue] = outcome
        return outcome

    def not_sent(self, error: SqsError) -> Hold:
        """The service cannot be reached."""
        self.stopped = Hold(str(error))
        # What is unknown of another call stays unknown.
        self.unavailable = self.unavailable or SinkUnavailable(str(error), unknown=False)
        return self.stopped

    def unanswered(self, error: Exception) -> Hold:
        """A request left, and what became of it nobody knows."""
        reason = str(error) if isinstance(error, SqsError) else describe(type(error).__name__, str(error))
        self.unavailable = SinkUnavailable(reason, unknown=True)
        return Hold(f"no answer, it may have arrived: {reason}")
