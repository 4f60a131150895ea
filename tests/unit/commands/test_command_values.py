"""What people write on the command line and read in its tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from relay import progress
from relay.admin.status import SinkStatus, Status
from relay.commands.common import counted
from relay.commands.parameters import duration, moment
from relay.commands.sinks_table import age


def test_a_moment_is_a_duration_or_a_time_with_its_zone() -> None:
    assert moment("90m") == timedelta(minutes=90)
    assert moment("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert moment("2026-01-31 14:00+02:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31", "yesterday", "-5m", "", "5 parsecs"])
def test_whatever_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected"):
        moment(text)


def test_a_duration() -> None:
    assert duration("500ms") == 0.5
    with pytest.raises(click.BadParameter, match="expected a duration"):
        duration("soon")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.04, "0.0s"), (119.9, "119.9s"), (120, "2m"), (7_199, "120m"), (7_200, "2h"), (200_000, "2d")],
)
def test_an_age_is_short(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


def test_counts_in_words() -> None:
    assert [counted(number, "message") for number in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]


def test_progress_in_a_pipe_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.progress("requeued", 3000) as advance:
        advance(1000)
        monkeypatch.setattr(progress, "EVERY_S", 0.0)
        advance(1000)
    assert capsys.readouterr().err == "requeued: 2,000 of 3,000\n"


def test_a_sink_that_does_not_wait_is_no_problem() -> None:
    paused = SinkStatus("emails", 5, 1, 0, 0, 9_999.0, "moving", None, True)
    scheduled = SinkStatus("orders", 0, 7, 3, 0, None, None, None, True)
    assert Status([paused, scheduled], unrouted=0, relays=0).problems(max_age=60, max_dead=0) == []
