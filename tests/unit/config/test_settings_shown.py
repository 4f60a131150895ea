"""The settings in effect: what `relay config show` tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.config.effective import load_effective
from tests.unit.configured import DATABASE, MEMORY, problems, write

SECRET = "s3cret"


def shown(folder: Path, text: str, env: Mapping[str, str] | None = None) -> dict[str, tuple[Any, str]]:
    file = write(folder, text)
    found = load_effective(file, env or {})
    assert len({key for key, _, _ in found}) == len(found)
    return {key: (value, origin.replace(str(file), "relay.toml")) for key, value, origin in found}


def test_every_value_and_where_it_came_from(tmp_path: Path) -> None:
    text = MEMORY + 'lease = "60s"\nclient."a.b" = 1\n[[routes]]\nkind = "*"\nsink = "orders"\n'
    found = shown(tmp_path, text, {"RELAY_SINKS__ORDERS__WORKERS": "4", "RELAY_LOG_LEVEL": "INFO"})
    assert found["database.url"] == ("postgresql://relay@db/app", "file relay.toml")
    assert found["database.listen_url"] == (None, "default")
    assert found["database.timeout"] == ("30s", "default")
    assert found["sinks.orders.type"] == ("memory", "file relay.toml")
    assert found["sinks.orders.lease"] == ("1m", "file relay.toml")
    assert found["sinks.orders.batch_bytes"] == ("4MiB", "default")
    assert found["sinks.orders.workers"] == (4, "environment RELAY_SINKS__ORDERS__WORKERS")
    assert found["sinks.orders.backoff.max"] == ("10m", "default")
    assert found["sinks.orders.keep"] == (True, "default")
    assert found['sinks.orders.client."a.b"'] == (1, "file relay.toml")
    assert found["routes[0].kind"] == ("*", "file relay.toml")
    assert found["routes[0].share"] == ([0, 100], "default")
    assert found["log.level"] == ("info", "environment RELAY_LOG_LEVEL")
    assert not [key for key in found if "sink_class" in key or "options" in key]


def test_an_empty_table_is_shown_as_one(tmp_path: Path) -> None:
    assert shown(tmp_path, MEMORY)["sinks.orders.client"] == ({}, "default")
    assert not [key for key in shown(tmp_path, DATABASE) if key.startswith(("sinks", "routes"))]


def test_no_secret_is_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    text = f"""
    [database]
    url = "host=db password='{SECRET}'"
    listen_url = "postgresql://relay:${{file:{tmp_path}/secret}}@db/app"
    [sinks.secret-sink]
    type = "memory"
    workers = "${{WORKERS}}"
    client = {{ password = "{SECRET}", urls = ["redis://:{SECRET}@h"], a = "<${{API_TOKEN}}>", b = "${{PLAIN}}" }}
    """
    env = {"WORKERS": "2", "API_TOKEN": SECRET, "PLAIN": "p", "RELAY_SINKS__SECRET_SINK__CLIENT__PIN_SECRET": SECRET}
    found = shown(tmp_path, text, env)
    assert SECRET not in str(found)
    assert found["database.url"][0] == "host=db password=***"
    assert found["database.listen_url"][0] == "postgresql://relay:***@db/app"
    assert found["sinks.secret-sink.workers"][0] == 2
    assert found["sinks.secret-sink.client.password"][0] == "***"
    assert found["sinks.secret-sink.client.urls"][0] == ["redis://:***@h"]
    assert found["sinks.secret-sink.client.a"][0] == "<***>"
    assert found["sinks.secret-sink.client.b"][0] == "p"


def test_no_secret_is_in_a_problem(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    reference = f"${{file:{tmp_path}/secret}}"
    text = f"""
    database = {{ url = "postgres//u password={SECRET}", listen_url = "mysql://u:{reference}@db" }}
    [sinks.a]
    type = "{reference}"
    workers = "{reference}"
    lease = "${{DB_PASS}}"
    client = "password={SECRET}"
    """
    found = problems(tmp_path, text, {"DB_PASS": SECRET})
    assert len(found) == 6
    assert SECRET not in "\n".join(found)
