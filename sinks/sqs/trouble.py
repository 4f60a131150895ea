"""What the errors of one batch say of its calls to come."""

from __future__ import annotations

from sinks.base import Batch, Hold, Outcome, Retry, SinkUnavailable
from sinks.sqs.errors import ACCOUNT_WIDE, Cause, Refused, SqsError, describe, hold

LONGEST_WAIT_S = 30.0
"""Of a message that the service failed with, while it took others."""


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
        self.takes: set[str] = set()
        """Queues that took a message."""
        self.failed_inside: dict[int, tuple[str, Hold]] = {}
        """Messages that the service failed with: queue and what was said, by position."""

    def of_messages(self) -> list[tuple[int, Hold]]:
        """Failures of single messages: those of queues that took others."""
        return [(position, said) for position, (queue, said) in self.failed_inside.items() if queue in self.takes]

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


class Pace:
    """How many calls of one queue may be in flight: few until it has taken some, half as many once it was throttled,
    and from then on one more for each round of calls that it took.

    Args:
        most: calls.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls = 1.0
        self._throttled = False

    @property
    def calls(self) -> int:
        return int(self._calls)

    def took(self) -> None:
        """A call was answered, and all of its messages were taken."""
        more = 1 / self._calls if self._throttled else 1.0
        self._calls = min(float(self._most), self._calls + more)

    def throttled(self) -> None:
        """The queue takes no more for now."""
        self._throttled = True
        self._calls = max(1.0, self._calls / 2)


def later(reason: str, batch: Batch, position: int) -> Retry:
    """The outcome of a message that failed for no reason of its own, nor of its queue's: an older one waits longer."""
    age = (batch.claimed_us - batch.messages[position].created_us) / 1e6
    return Retry(reason, min(max(age / 10, 1.0), LONGEST_WAIT_S), counted=False)
