"""What Redis says, in the relay's words: the one place where its error texts are read.

The same refusal has several spellings. Of a command inside a script, Redis 6.2 says
``@user_script: 7: -OOM command not allowed …``, Redis 7 and Valkey ``OOM command not allowed …``; redis-py takes the
code away from the texts that it knows and makes a class of it. All seen with Redis 6.2, 7.0 and 8.0, Valkey 8.1
and 9.1.
"""

from __future__ import annotations

import re

from redis import exceptions as redis

from sinks.base import Hold, Outcome, Reject, Retry

BEHIND = "BEHIND"
"""What the script says of a message that it did not push because an earlier one of its key failed."""

BEFORE = "BEFORE"
"""What the script says of a message that an earlier claim had pushed, and that it did not push again."""

# The whole server is unwell, or this client is not let in: no message's fault.
_SERVER = re.compile(
    r"(?:^|[\s-])(?:OOM|READONLY|LOADING|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|CROSSSLOT|BUSY"
    r"|NOAUTH|WRONGPASS|DENIED)\b|Script attempted to access"
)

_CODE_OF_CLASS: dict[type[redis.RedisError], str] = {
    redis.OutOfMemoryError: "OOM",
    redis.ReadOnlyError: "READONLY",
    redis.BusyLoadingError: "LOADING",
    redis.MasterDownError: "MASTERDOWN",
    redis.ClusterDownError: "CLUSTERDOWN",
    redis.TryAgainError: "TRYAGAIN",
    redis.MovedError: "MOVED",
    redis.AskError: "ASK",
    redis.ClusterCrossSlotError: "CROSSSLOT",
    redis.AuthenticationError: "NOAUTH",
    redis.NoPermissionError: "NOPERM",
}

_DENIED = re.compile(
    r"\bNOPERM\b|user executing the script can't|ACL failure in script|no permissions to|unknown (?:redis )?command",
    re.IGNORECASE,
)
_MOVED = re.compile(r"^MOVED \d+ (.*):(\d+)$")
_CLIENT = re.compile(
    r"^(?:NOAUTH|WRONGPASS|DENIED)\b|^NOPERM\b(?!.*\bkeys?\b)|^CLUSTERDOWN The cluster|unknown (?:redis )?command",
    re.IGNORECASE,
)
_KEY_UNFIT = re.compile(r"^WRONGTYPE|exhausted the last possible ID")
_TOO_LARGE = re.compile(r"too large to be stored|exceeds maximum allowed size", re.IGNORECASE)


def describe(error: BaseException | str) -> str:
    """One line for a person, without line ends and of bounded length."""
    text = str(error)
    code = _CODE_OF_CLASS.get(type(error)) if isinstance(error, redis.RedisError) else None
    if code and not text.startswith(code):
        text = f"{code} {text}"
    return " ".join(text.split())[:300]


def refused(error: redis.RedisError) -> bool:
    """Whether the server said no before it did anything. False: the command may have been carried out."""
    text = str(error)
    if "user_script" in text:  # It began to run: the fenced script itself catches what it must.
        return False
    if type(error) in _CODE_OF_CLASS or text.startswith("Protocol error"):
        return True
    return isinstance(error, redis.ResponseError) and bool(_SERVER.search(text) or _DENIED.search(text))


def client_refused(reason: str) -> bool:
    """Whether a refusal, as `describe` tells it, would be the same of every node of a cluster."""
    return bool(_CLIENT.search(reason))


def moved_to(reason: str) -> tuple[str, int] | None:
    """Host and port that serve a slot now, as a refusal tells it; the host is empty where it is the same."""
    found = _MOVED.search(reason)
    return (found[1], int(found[2])) if found else None


def outcome_of(error: str, key: str) -> Outcome:
    """The outcome of one message whose push to `key` the server refused with `error`."""
    if error == BEHIND:
        return Retry("not sent: an earlier message of its key was not delivered")
    reason = f"{key}: {describe(error)}"
    if _SERVER.search(error):
        return Hold(reason)
    if _DENIED.search(error) or _KEY_UNFIT.search(error):
        return Hold(reason, key)
    if _TOO_LARGE.search(error):
        return Reject(reason)
    return Retry(reason)
