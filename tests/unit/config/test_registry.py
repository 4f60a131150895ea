"""Sinks by type: ours, a plug-in's, and those that cannot be had."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from relay.config.registry import EXTRAS, GROUP, SinkTypeError, load_sink
from sinks.base import Sink, SinkConfig
from sinks.memory import MemorySink
from tests.unit.configured import DATABASE, plug_in, problems, settings


def test_every_sink_of_this_package_loads() -> None:
    ours = [entry for entry in entry_points(group=GROUP) if entry.dist and entry.dist.name == "outbox-relay"]
    assert {"memory", "redis-stream", "sidekiq"} <= {entry.name for entry in ours}
    for entry in ours:
        assert issubclass(load_sink(entry.name), Sink)


def test_an_unknown_type() -> None:
    with pytest.raises(SinkTypeError) as caught:
        load_sink("redis-streams")
    assert str(caught.value) == 'expected an installed sink type (the nearest is "redis-stream"), got "redis-streams"'


@pytest.mark.parametrize("sink_type", EXTRAS)
def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink_type: str) -> None:
    plug_in(tmp_path, monkeypatch, sink_type, "import no_such_library\n")
    monkeypatch.setattr("relay.config.registry.entry_points", lambda group: entry_points(group=group, module="plugged"))
    found = problems(tmp_path, f'{DATABASE}sinks.x = {{ type = "{sink_type}", url = "redis://h" }}')
    assert found == [
        f'relay.toml: sinks.x.type: expected the library of "{sink_type}" to be installed: '
        f"pip install 'outbox-relay[{EXTRAS[sink_type]}]', got No module named 'no_such_library'"
    ]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_library", 'expected the library of "x" to be installed, got No module named'),
        ("Plugged = 5", "expected a subclass of sinks.base.Sink at plugged:Plugged, got 5"),
        ("Plugged = dict", "expected a subclass of sinks.base.Sink at plugged:Plugged, got <class 'dict'>"),
        ("", "expected plugged:Plugged to be importable, got AttributeError: "),
        ("1 / 0", "expected plugged:Plugged to be importable, got ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, problem: str) -> None:
    plug_in(tmp_path, monkeypatch, "x", source)
    with pytest.raises(SinkTypeError) as caught:
        load_sink("x")
    assert str(caught.value).startswith(problem)


def test_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(tmp_path, monkeypatch, "x", "from sinks.memory import MemorySink\nclass Plugged(MemorySink): pass\n")
    sink_class = settings(tmp_path, DATABASE + 'sinks.x.type = "x"').sinks["x"].sink_class
    assert sink_class.__name__ == "Plugged"
    assert issubclass(sink_class, MemorySink)


def test_options_that_a_client_library_refuses(tmp_path: Path) -> None:
    text = (
        DATABASE
        + 'sinks.x = { type = "redis-stream", url = "redis://h", client = { sokket = 5, password = "s3cret" } }'
    )
    (problem,) = problems(tmp_path, text)
    assert problem.startswith("relay.toml: sinks.x.client: expected options that redis-py knows")
    assert problem.endswith('got {"sokket": "***", "password": "***"}')


def test_a_value_that_may_be_of_several_types(tmp_path: Path) -> None:
    text = DATABASE + 'sinks.x = { type = "sidekiq", url = "redis://h", retry = "x", queue = "{nothing}" }'
    found = problems(tmp_path, text)
    assert [line.split(": ")[1] for line in found] == ["sinks.x.queue", "sinks.x.retry"]
    assert found[1].endswith('expected true or false or a whole number, got "x"')


def test_what_a_settings_sink_is_made_from(tmp_path: Path) -> None:
    sink = settings(tmp_path, DATABASE + 'sinks.x = { type = "memory", order = "key", client = { a = 1 } }').sinks["x"]
    assert sink.sink_class(sink.config).config == SinkConfig("x", sink.options, 10.0, ordered=True, client={"a": 1})
