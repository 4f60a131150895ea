"""The contract suite's part for sinks with a fence, such as those in Redis."""

from __future__ import annotations

import pytest

from sinks.base import DELIVERED, ClaimRevoked, Delivered, Reject
from sinks.testing.contract import SinkContract
from sinks.testing.messages import batch, message


class FencedSinkContract(SinkContract):
    """A sink whose receiver refuses a stale sender."""

    fenced = True

    def test_same_token_answers_the_same_and_sends_nothing(self) -> None:
        once = batch([message(1), self.unsendable(message(2)), message(3)])
        with self.opened() as first, self.opened() as second:
            outcomes = list(first.send(once))
            assert list(second.send(once)) == list(first.send(once)) == outcomes
        self.assert_arrived(once.messages[::2])

    def test_claim_after_one_that_delivered_sends_only_the_rest(self) -> None:
        first = batch([message(1), self.unsendable(message(2)), message(3)])
        again = [one._replace(prior_tokens=(first.token,)) for one in first.messages]
        with self.opened() as sink:
            sink.send(first)
            outcomes = sink.send(batch([*again, message(4)]))
        assert [type(outcome) for outcome in outcomes] == [Delivered, Reject, Delivered, Delivered]
        assert len(self.arrived([*again[::2], message(4)])) == 3

    def test_stalled_sender_is_refused(self) -> None:
        stalled = batch([message(1), message(2)])
        again = [one._replace(prior_tokens=(stalled.token,)) for one in stalled.messages]
        with self.opened() as sink, self.opened() as zombie:
            assert list(sink.send(batch(again))) == [DELIVERED] * 2
            with pytest.raises(ClaimRevoked):
                zombie.send(stalled)
        self.assert_arrived(stalled.messages)

    def test_any_of_several_earlier_claims_may_have_delivered(self) -> None:
        one, two, three = message(1), message(2), message(3)
        done, silent = batch([one]), batch([two, three])
        again = [
            one._replace(prior_tokens=(silent.token, done.token)),
            two._replace(prior_tokens=(silent.token,)),
            three,
        ]
        with self.opened() as sink:
            sink.send(done)
            assert list(sink.send(batch(again))) == [DELIVERED] * 3
            with pytest.raises(ClaimRevoked):
                sink.send(silent)
        self.assert_arrived([one, two, three])

    def test_what_is_given_up_is_not_sent_and_cannot_arrive_later(self) -> None:
        stalled = batch([message(1), message(2)])
        first, second = (one._replace(prior_tokens=(stalled.token,)) for one in stalled.messages)
        with self.opened() as sink, self.opened() as zombie:
            given_up = batch([first, second, message(3)], withdrawn=frozenset({first.id}))
            assert [type(outcome) for outcome in sink.send(given_up)] == [Reject, Delivered, Delivered]
            with pytest.raises(ClaimRevoked):
                zombie.send(stalled)
        self.assert_arrived(given_up.messages[1:])

    def test_what_is_given_up_and_had_arrived_is_delivered(self) -> None:
        first = batch([message(1), message(2)])
        again = [one._replace(prior_tokens=(first.token,)) for one in first.messages]
        with self.opened() as sink:
            sink.send(first)
            outcomes = list(sink.send(batch(again, withdrawn=frozenset({again[0].id}))))
        assert outcomes == [DELIVERED] * 2
        assert all(isinstance(outcome, Delivered) and outcome.before for outcome in outcomes)
        self.assert_arrived(first.messages)
