"""The fence: what marks say, and what becomes of messages by what they say."""

from __future__ import annotations

import pytest
import redis

from sinks.base import DELIVERED, Batch, ClaimRevoked, Delivered, Hold, Message, SinkUnavailable
from sinks.redis.fence import ServerFence
from sinks.redis.script import MARK_SECONDS, mark_key
from sinks.template import Template
from sinks.testing import batch, message
from tests.redis_sinks import jobs, marks, names, payloads, sidekiq, streams
from tests.servers.redis import every_redis

pytestmark = every_redis


def after(claim: Batch, *, only: list[int] | None = None) -> list[Message]:
    """The messages of a claim that died, as the next owner gets them."""
    return [
        one._replace(prior_tokens=(*one.prior_tokens, claim.token))
        for one in claim.messages
        if only is None or one.id in only
    ]


def test_mark_says_done_and_lives_for_days(redis_url: str, redis_client: redis.Redis) -> None:
    claim = batch([message(1), message(2)])
    with streams(redis_url) as sink:
        sink.send(claim)
    assert marks(redis_client) == {claim.token.hex: "done"}
    assert MARK_SECONDS - 10 < int(redis_client.ttl(mark_key(claim.token))) <= MARK_SECONDS


def test_failures_are_in_the_mark_and_come_back_when_asked_again(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("broken", "no stream")
    claim = batch([message(1), message(2, headers={"to": "broken"}), message(3)])
    with streams(redis_url) as sink:
        outcomes = list(sink.send(claim))
        redis_client.delete("broken")
        assert list(sink.send(claim)) == outcomes
    assert outcomes[::2] == [DELIVERED, DELIVERED]
    assert isinstance(outcomes[1], Hold)
    assert outcomes[1].destination == "broken"
    assert "WRONGTYPE" in outcomes[1].reason
    assert marks(redis_client)[claim.token.hex].startswith("done\n2 WRONGTYPE ")
    assert payloads(redis_client) == [claim.messages[0].data, claim.messages[2].data]
    assert payloads(redis_client, "broken") == []


def test_next_owner_sends_what_the_mark_lists_as_failed(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("broken", "no stream")
    claim = batch([message(1), message(2, headers={"to": "broken"})])
    with streams(redis_url) as sink:
        sink.send(claim)
        redis_client.delete("broken")
        assert list(sink.send(batch(after(claim)))) == [DELIVERED, DELIVERED]
    assert payloads(redis_client) == [claim.messages[0].data]
    assert payloads(redis_client, "broken") == [claim.messages[1].data]


def test_message_that_the_sender_refused_is_not_believed_delivered(redis_url: str, redis_client: redis.Redis) -> None:
    claim = batch([message(1, headers={"to": "orders"}), message(2)])
    with streams(redis_url, stream=Template("{header.to}")) as sink:
        outcomes = list(sink.send(claim))
        assert names(outcomes) == ["Delivered", "Reject"]
        assert list(sink.send(claim)) == outcomes
    with streams(redis_url, stream=Template("orders")) as sink:
        assert list(sink.send(batch(after(claim)))) == [DELIVERED, DELIVERED]
    assert payloads(redis_client) == [one.data for one in claim.messages]


def test_message_that_an_earlier_claim_delivered_is_not_refused_later(
    redis_url: str, redis_client: redis.Redis
) -> None:
    claim = batch([message(1)])
    with streams(redis_url, stream=Template("orders")) as sink:
        sink.send(claim)
    with streams(redis_url, stream=Template("{header.to}")) as sink:
        assert list(sink.send(batch(after(claim)))) == [DELIVERED]
        assert names(sink.send(batch([message(2)]))) == ["Reject"]
    assert len(payloads(redis_client)) == 1


def test_silent_claim_is_revoked_for_all_its_messages(redis_url: str, redis_client: redis.Redis) -> None:
    silent = batch([message(1), message(2)])
    with streams(redis_url) as sink, streams(redis_url) as zombie:
        claim = batch(after(silent, only=[1]))
        assert list(sink.send(claim)) == [DELIVERED]
        with pytest.raises(ClaimRevoked, match=str(silent.token)):
            zombie.send(silent)
        assert marks(redis_client) == {silent.token.hex: "revoked", claim.token.hex: "done"}
        assert list(sink.send(batch(after(silent, only=[2])))) == [DELIVERED]
    assert payloads(redis_client) == [one.data for one in silent.messages]


def test_claims_of_claims(redis_url: str, redis_client: redis.Redis) -> None:
    first = batch([message(1), message(2)])
    second = batch(after(first))
    third = batch([*after(second), message(3)])
    with streams(redis_url) as sink:
        sink.send(second)
        assert list(sink.send(third)) == [DELIVERED] * 3
        for stale in (first, first):
            with pytest.raises(ClaimRevoked):
                sink.send(stale)
        assert list(sink.send(second)) == [DELIVERED] * 2
    assert payloads(redis_client) == [one.data for one in third.messages]


def test_script_that_died_half_way_counts_as_not_sent(redis_url: str, redis_client: redis.Redis) -> None:
    own, earlier = batch([message(1)]), batch([message(2)])
    for claim in (own, earlier):
        redis_client.set(mark_key(claim.token), "open")
    with streams(redis_url) as sink:
        assert list(sink.send(own)) == [DELIVERED]
        assert list(sink.send(batch(after(earlier)))) == [DELIVERED]
        with pytest.raises(ClaimRevoked):
            sink.send(earlier)
    assert len(payloads(redis_client)) == 2


def test_settled_marks_go_with_the_next_call(redis_url: str, redis_client: redis.Redis) -> None:
    first, second = batch([message(1)]), batch([message(2)])
    with streams(redis_url) as sink:
        sink.send(first)
        sink.send(second)
        third = batch([message(3)], settled=(first.token, second.token))
        sink.send(third)
    assert marks(redis_client) == {third.token.hex: "done"}


def test_script_cache_may_be_flushed_at_any_time(redis_url: str, redis_client: redis.Redis) -> None:
    claims = [batch([message(number)]) for number in range(3)]
    with streams(redis_url) as sink:
        for claim in claims:
            redis_client.script_flush()
            assert list(sink.send(claim)) == [DELIVERED]
            redis_client.script_flush()
            assert list(sink.send(claim)) == [DELIVERED]
    assert payloads(redis_client) == [claim.messages[0].data for claim in claims]


def test_more_messages_than_one_command_takes(redis_url: str, redis_client: redis.Redis) -> None:
    messages = [message(number, headers={"queue": f"q{number % 2}"}) for number in range(5000)]
    earlier = batch(messages[100:2600])
    claim = batch([*messages[:100], *after(earlier), *messages[2600:]])
    with sidekiq(redis_url) as sink:
        sink.send(earlier)
        assert list(sink.send(claim)) == [DELIVERED] * 5000
    for queue in (0, 1):
        numbers = [job["args"][0] for job in jobs(redis_client, f"q{queue}")]
        sent_first = [one.id for one in messages[100:2600] if one.id % 2 == queue]
        sent_second = [one.id for one in [*messages[:100], *messages[2600:]] if one.id % 2 == queue]
        assert numbers == sent_first + sent_second


def test_failure_of_a_group_is_each_member_s(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("queue:broken", "no list")
    messages = [message(number, headers={"queue": ("broken", "fine")[number % 2]}) for number in range(2400)]
    claim = batch(messages)
    with sidekiq(redis_url) as sink:
        outcomes = list(sink.send(claim))
        assert list(sink.send(claim)) == outcomes
    assert [type(outcome) for outcome in outcomes] == [Hold, Delivered] * 1200
    assert {one.destination for one in outcomes if isinstance(one, Hold)} == {"queue:broken"}
    assert len(jobs(redis_client, "fine")) == 1200


def test_command_that_a_push_needs_must_succeed(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("queues", "no set")
    with sidekiq(redis_url) as sink:
        (outcome,) = sink.send(batch([message(1)]))
    assert isinstance(outcome, Hold)
    assert "WRONGTYPE" in outcome.reason
    assert jobs(redis_client) == []


def test_ordered_messages_wait_behind_a_failed_one_wherever_they_go(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("broken", "no stream")
    claim = batch(
        [
            message(1, key="a"),
            message(2, key="a", headers={"to": "broken"}),
            message(3, key="b"),
            message(4, key="a"),
            message(5),
            message(6, headers={"to": "broken"}),
            message(7),
        ]
    )
    with streams(redis_url, ordered=True) as sink:
        outcomes = list(sink.send(claim))
        assert names(outcomes) == ["Delivered", "Hold", "Delivered", "Retry", "Delivered", "Hold", "Delivered"]
        assert list(sink.send(claim)) == outcomes
        assert payloads(redis_client) == [claim.messages[at].data for at in (0, 2, 4, 6)]
        redis_client.delete("broken")
        assert list(sink.send(batch(after(claim)))) == [DELIVERED] * 7
    assert payloads(redis_client) == [claim.messages[at].data for at in (0, 2, 4, 6, 3)]


def test_ordered_jobs_wait_behind_a_failed_one_in_another_queue(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("queue:broken", "no list")
    keyed = [message(number, key="a") for number in range(4)]
    keyed[1] = keyed[1]._replace(headers={"queue": "broken"})
    with sidekiq(redis_url, ordered=True) as sink:
        assert names(sink.send(batch(keyed))) == ["Delivered", "Hold", "Retry", "Retry"]
    assert [job["args"][0] for job in jobs(redis_client)] == [0]


def test_earlier_claim_of_another_batch_says_nothing_of_new_messages(redis_url: str, redis_client: redis.Redis) -> None:
    done = batch([message(1)])
    with streams(redis_url) as sink:
        sink.send(done)
        assert list(sink.send(batch([*after(done), message(11)]))) == [DELIVERED] * 2
    assert len(payloads(redis_client)) == 2


def test_one_message_that_cannot_be_written_is_retried_alone(redis_url: str, redis_client: redis.Redis) -> None:
    bad = message(2, headers={"of no JSON": object()})
    with streams(redis_url) as sink:
        outcomes = sink.send(batch([message(1), bad, message(3)]))
    assert names(outcomes) == ["Delivered", "Retry", "Delivered"]
    assert len(payloads(redis_client)) == 2


def test_mark_that_is_none_of_ours_refuses_the_batch(redis_url: str, redis_client: redis.Redis) -> None:
    earlier = batch([message(1)])
    redis_client.rpush(mark_key(earlier.token), "somebody else's")
    with streams(redis_url) as sink:
        for claim in (earlier, batch(after(earlier))):
            with pytest.raises(SinkUnavailable, match="WRONGTYPE") as caught:
                sink.send(claim)
            assert not caught.value.unknown
    assert payloads(redis_client) == []


def test_answer_that_is_not_the_script_s_is_no_answer(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with streams(redis_url) as sink:
        assert isinstance(sink.fence, ServerFence)
        monkeypatch.setattr(sink.fence.primary.connection, "call", lambda *requests: [b"OK"])
        with pytest.raises(SinkUnavailable) as caught:
            sink.send(batch([message(1)]))
    assert caught.value.unknown
