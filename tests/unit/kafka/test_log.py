"""librdkafka's lines in the relay's log."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import Producer

from sinks.kafka.log import LibraryLog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "sinks.kafka"]


def test_line_keeps_its_level_and_comes_once_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "sinks.kafka")
    library = LibraryLog(every_s=3600)
    for number in range(50):
        for level in (logging.ERROR, logging.INFO, logging.DEBUG):
            library.log(level, "%s [%s] %s", "FAIL", f"outbox-relay-a#producer-{number}", "refused")
    library.log(logging.ERROR, "%s [%s] %s", "FAIL", "outbox-relay-b#producer-1", "refused")
    library.log(logging.ERROR, "%s [%s] %s", "TIMEOUT", "outbox-relay-a#producer-1", "no answer")
    library.log(logging.ERROR, "a line of another form")
    levels = [level for level, _ in lines(caplog)]
    assert levels.count(logging.ERROR) == 4
    assert levels.count(logging.INFO) == 1
    assert levels.count(logging.DEBUG) == 50  # asked for by the option `debug`


def test_what_was_left_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    library = LibraryLog(every_s=0.2)
    for _ in range(2):
        for _ in range(5):
            library.log(logging.ERROR, "%s [%s] %s", "FAIL", "a#producer-1", "refused")
        time.sleep(0.25)
    assert lines(caplog)[1] == (logging.ERROR, "FAIL [a#producer-1] refused (4 more lines like this were left out)")


def test_librdkafka_hands_its_lines_over_in_that_form(caplog: pytest.LogCaptureFixture) -> None:
    library = LibraryLog()
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "client.id": "it", "logger": library})
    deadline = time.monotonic() + 10
    while not lines(caplog) and time.monotonic() < deadline:
        producer.poll(0.1)
    time.sleep(0.5)
    producer.poll(0)
    ((level, text),) = lines(caplog)
    assert level == logging.ERROR
    assert text.startswith("FAIL [it#producer-")
