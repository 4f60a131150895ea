"""What AWS refuses, as far as emulators take it (service model of botocore; AWS `quotas-messages`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.servers.sqs_answers import Call, Failures, Fault

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def size(entry: Mapping[str, Any]) -> int:
    """Bytes, as AWS counts them."""
    attributes = entry.get("MessageAttributes", {}).items()
    texts = [text for name, value in attributes for text in (name, value["DataType"], value["StringValue"])]
    return sum(len(text.encode()) for text in [entry["MessageBody"], *texts])


def refusal(call: Call, limit: int) -> Fault | Failures | None:
    """What AWS would say to this call; None: it takes all."""
    entries = call.entries
    ids = [entry["Id"] for entry in entries]
    if not 1 <= len(ids) <= 10:
        return Fault("AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
    if len(set(ids)) < len(ids):
        return Fault("AWS.SimpleQueueService.BatchEntryIdsNotDistinct")
    if not all(re.fullmatch("[A-Za-z0-9_-]{1,80}", each) for each in ids):
        return Fault("AWS.SimpleQueueService.InvalidBatchEntryId")
    if sum(map(size, entries)) > limit:
        return Fault("AWS.SimpleQueueService.BatchRequestTooLong")
    failed = {position: (code, True) for position, entry in enumerate(entries) if (code := _fault_of(call, entry))}
    return Failures(failed) if failed else None


def _fault_of(call: Call, entry: Mapping[str, Any]) -> str:
    fifo = call.queue.endswith(".fifo")
    attributes = entry.get("MessageAttributes", {})
    texts = [entry["MessageBody"], *[value["StringValue"] for value in attributes.values()]]
    if any(ILLEGAL.search(text) for text in texts):
        return "InvalidMessageContents"
    if fifo and not {"MessageGroupId", "MessageDeduplicationId"} <= set(entry):
        return "MissingParameter"
    legal = (
        all(texts)
        and len(attributes) <= 10
        and all(re.fullmatch(r"(?!(?i:aws|amazon)\.)(?!.*\.\.)[\w-]([\w.-]*[\w-])?", name, re.A) for name in attributes)
        and re.fullmatch("[!-~]{1,128}", entry.get("MessageGroupId", "-"))
        and re.fullmatch("[!-~]{1,128}", entry.get("MessageDeduplicationId", "-"))
        and (not fifo or "DelaySeconds" not in entry)
        and (fifo or "MessageDeduplicationId" not in entry)
        and 0 <= entry.get("DelaySeconds", 0) <= 900
    )
    return "" if legal else "InvalidParameterValue"
