"""What a configuration file means."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

import relay
from relay.config.settings import DatabaseSettings, LogSettings, Route, SinkKeys, load
from relay.errors import ConfigError
from sinks.memory import MemoryOptions, MemorySink
from tests.unit.configured import DATABASE, MEMORY, settings

STARTER = Path(relay.__file__).with_name("config") / "starter.toml"
PLAIN_URL = 'url = "postgresql://localhost/app"\n'


def test_every_default(tmp_path: Path) -> None:
    result = settings(tmp_path, MEMORY)
    assert result.database.listen_url is None
    assert (result.database.notify, result.database.timeout) == (True, 30.0)
    assert (result.routes, result.log.level) == ((), "info")
    sink = result.sinks["orders"]
    assert (sink.name, sink.type, sink.sink_class, sink.options) == ("orders", "memory", MemorySink, MemoryOptions())
    assert (sink.order, sink.ordered, sink.shards, sink.strict, sink.after_dead) == ("none", False, 0, False, "skip")
    assert (sink.workers, sink.batch_messages, sink.batch_bytes, sink.max_attempts) == (1, 1000, 4 * 2**20, 20)
    assert (sink.lease, sink.send_timeout, sink.backoff.base, sink.backoff.max) == (30.0, 10.0, 1.0, 600.0)
    assert sink.client == {}


def test_every_key(tmp_path: Path) -> None:
    result = settings(
        tmp_path,
        """
        [database]
        url = "host=db dbname=app user=relay"
        listen_url = "postgresql://relay@db:5433/app"
        notify = false
        timeout = "500ms"

        [log]
        format = "human"
        level = "DEBUG"

        [sinks.orders]
        type = "memory"
        keep = false
        order = "key"
        workers = 4
        batch_messages = 10
        batch_bytes = "256KiB"
        lease = "1h"
        send_timeout = 60
        max_attempts = 3
        backoff = { base = "250ms", max = "7d" }
        after_dead = "block"
        shards = 8
        strict = true
        client = { "bootstrap.servers" = "kafka:9092", nested = { retries = 0 } }

        [[routes]]
        kind = "order.*"
        sink = "orders"

        [[routes]]
        kind = "Send*"
        sink = "orders"
        share = [0, 50]
        shadow = false
        """,
    )
    assert (result.database.notify, result.database.timeout) == (False, 0.5)
    assert result.database.listen_url == "postgresql://relay@db:5433/app"
    assert (result.log.format, result.log.level) == ("human", "debug")
    sink = result.sinks["orders"]
    assert sink.options == MemoryOptions(keep=False)
    assert (sink.ordered, sink.shards, sink.strict, sink.after_dead) == (True, 8, True, "block")
    assert (sink.workers, sink.batch_messages, sink.batch_bytes, sink.max_attempts) == (4, 10, 256 * 1024, 3)
    assert (sink.lease, sink.send_timeout, sink.backoff.base, sink.backoff.max) == (3600.0, 60.0, 0.25, 7 * 86_400.0)
    assert sink.client == {"bootstrap.servers": "kafka:9092", "nested": {"retries": 0}}
    assert [(route.kind, route.share, route.shadow) for route in result.routes] == [
        ("order.*", (0, 100), False),
        ("Send*", (0, 50), False),
    ]


def test_an_ordered_sink_has_64_shards_and_another_has_none(tmp_path: Path) -> None:
    assert settings(tmp_path, MEMORY + 'order = "key"\n').sinks["orders"].shards == 64
    assert settings(tmp_path, MEMORY + "shards = 8\n").sinks["orders"].shards == 0


def test_settings_do_not_change(tmp_path: Path) -> None:
    result = settings(tmp_path, MEMORY)
    with pytest.raises(ValidationError, match="frozen"):
        result.sinks["orders"].workers = 2
    with pytest.raises(ValidationError, match="frozen"):
        result.database.notify = False


def test_logs_are_json_where_no_terminal_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, expected in ((False, "json"), (True, "human")):
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=terminal: answer)
        assert settings(tmp_path, DATABASE).log.format == expected


def test_the_file_is_the_named_one_else_relay_config_else_the_folders_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("named", "variable", "relay"):
        Path(f"{name}.toml").write_text(f'database = {{ url = "postgresql://db/{name}" }}')
    env = {"RELAY_CONFIG": "variable.toml"}
    assert load(Path("named.toml"), env).database.url.endswith("/named")
    assert load(None, env).database.url.endswith("/variable")
    assert load(None, {"RELAY_CONFIG": ""}).database.url.endswith("/relay")


def test_no_file_is_needed_where_the_environment_names_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = load(None, {"RELAY_DATABASE_URL": "postgresql://owner@localhost/app"})
    assert (result.database.url, result.sinks) == ("postgresql://owner@localhost/app", {})
    with pytest.raises(ConfigError, match="expected this file or RELAY_DATABASE_URL, got neither"):
        load(None, {"RELAY_LOG__LEVEL": "info"})


@pytest.mark.parametrize("env", [{}, {"RELAY_DATABASE_URL": "postgresql://db/app"}])
def test_a_file_that_was_named_must_be_there(tmp_path: Path, env: dict[str, str]) -> None:
    missing = tmp_path / "missing.toml"
    for config, variables in ((missing, env), (None, {**env, "RELAY_CONFIG": str(missing)})):
        with pytest.raises(ConfigError) as caught:
            load(config, variables)
        assert caught.value.problems == [f"{missing}: expected a readable file, got: No such file or directory"]


def test_the_starter_file_is_a_good_one(tmp_path: Path) -> None:
    result = settings(tmp_path, STARTER.read_text(encoding="utf-8"))
    assert [(route.kind, route.sink) for route in result.routes] == [("*", "events")]
    assert result.sinks["events"].type == "redis-stream"


def test_the_starter_file_shows_every_common_key_with_its_default(tmp_path: Path) -> None:
    text = STARTER.read_text(encoding="utf-8")
    plain = settings(tmp_path, text).sinks["events"]
    everything = re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE).replace(PLAIN_URL, "")
    result = settings(tmp_path, everything, {"DB_PASSWORD": "x", "REDIS_PASSWORD": "y"})
    assert result.sinks["events"] == plain
    assert result.sinks["jobs"].type == "sidekiq"
    written = tomllib.loads(everything)
    assert set(written["sinks"]["events"]) >= set(SinkKeys.model_fields)
    assert set(written["database"]) == set(DatabaseSettings.model_fields)
    assert set(written["log"]) == set(LogSettings.model_fields)
    assert set(written["routes"][1]) | {"shadow"} == set(Route.model_fields)
