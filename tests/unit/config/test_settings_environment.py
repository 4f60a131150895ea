"""Configuration from the environment: over the file, beside it and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.config.env import parse_value
from relay.config.settings import load
from tests.unit.configured import DATABASE, MEMORY, plug_in, problems, settings

TWO = DATABASE + '[sinks.my-orders]\ntype = "memory"\nclient = { "a.b" = 1 }\n[sinks.my-orders__eu]\ntype = "memory"\n'
URL = {"RELAY_DATABASE_URL": "postgresql://db/app"}


@pytest.mark.parametrize("name", ["RELAY_DATABASE_TIMEOUT", "RELAY_DATABASE__TIMEOUT"])
def test_sections_take_one_underscore_or_two(tmp_path: Path, name: str) -> None:
    assert settings(tmp_path, MEMORY, {name: "5s"}).database.timeout == 5.0


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    env = {
        **URL,
        "RELAY_DATABASE_LISTEN_URL": "postgresql://direct/app",
        "RELAY_DATABASE_NOTIFY": "false",
        "RELAY_LOG__LEVEL": "warning",
        "RELAY_SINKS__ORDERS__WORKERS": "4",
        "RELAY_SINKS__ORDERS__KEEP": "false",
        "RELAY_SINKS__ORDERS__BACKOFF__BASE": "2s",
        "RELAY_SINKS__ORDERS__CLIENT__SOCKET_TIMEOUT": "1.5",
    }
    result = settings(tmp_path, MEMORY + "workers = 2\nbackoff.max = 60\n", env)
    assert result.database.url == "postgresql://db/app"
    assert result.database.listen_url == "postgresql://direct/app"
    assert (result.database.notify, result.log.level) == (False, "warning")
    sink = result.sinks["orders"]
    assert (sink.workers, sink.backoff.base, sink.backoff.max) == (4, 2.0, 60.0)
    assert sink.options.model_dump() == {"keep": False}
    assert sink.client == {"socket_timeout": 1.5}


def test_names_meet_what_the_file_has(tmp_path: Path) -> None:
    env = {
        "RELAY_SINKS__MY_ORDERS__WORKERS": "2",
        "RELAY_SINKS__MY_ORDERS__CLIENT__A_B": "3",
        "RELAY_SINKS__MY_ORDERS__EU__WORKERS": "4",
    }
    sinks = settings(tmp_path, TWO, env).sinks
    assert (sinks["my-orders"].workers, sinks["my-orders__eu"].workers) == (2, 4)
    assert sinks["my-orders"].client == {"a.b": 3}


def test_lists_and_tables_are_toml_or_json(tmp_path: Path) -> None:
    toml = {
        "RELAY_ROUTES": '[{ kind = "a", sink = "orders" }]',
        "RELAY_SINKS__ORDERS__CLIENT": '{ "bootstrap.servers" = "k" }',
    }
    json = {
        "RELAY_ROUTES": '[{"kind": "a", "sink": "orders"}]',
        "RELAY_SINKS__ORDERS__CLIENT": '{"bootstrap.servers": "k"}',
    }
    for env in (toml, json):
        result = settings(tmp_path, MEMORY + '[[routes]]\nkind = "b"\nsink = "orders"', env)
        assert [route.kind for route in result.routes] == ["a"]
        assert result.sinks["orders"].client == {"bootstrap.servers": "k"}


def test_a_whole_table_is_taken_before_the_keys_in_it(tmp_path: Path) -> None:
    env = {
        "RELAY_SINKS__ORDERS__BACKOFF__MAX": "3s",
        "RELAY_SINKS__ORDERS__BACKOFF": '{ base = "2s" }',
        "RELAY_SINKS__ORDERS__WORKERS": "2",
        "RELAY_SINKS__ORDERS": '{ type = "memory", workers = 9 }',
    }
    sink = settings(tmp_path, MEMORY + "max_attempts = 3", env).sinks["orders"]
    assert (sink.backoff.base, sink.backoff.max, sink.workers, sink.max_attempts) == (2.0, 3.0, 2, 20)


def test_a_routes_key_by_its_place(tmp_path: Path) -> None:
    text = MEMORY + '[[routes]]\nkind = "b"\nsink = "orders"'
    result = settings(tmp_path, text, {"RELAY_ROUTES__0__SHARE": "[0, 5]"})
    assert result.routes[0].share == (0, 5)
    assert "expected a known name" in problems(tmp_path, text, {"RELAY_ROUTES__1__SHARE": "[0, 5]"})[0]


def test_the_environment_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {
        **URL,
        "RELAY_SINKS__ORDERS__TYPE": "memory",
        "RELAY_SINKS__ORDERS__ORDER": "key",
        "RELAY_ROUTES": '[{ kind = "*", sink = "orders" }]',
    }
    result = load(None, env)
    assert (result.sinks["orders"].shards, result.routes[0].sink) == (64, "orders")


@pytest.mark.parametrize("text", ["2024", "1_000", "true", "inf", "2024-01-01", "0x10", "{kind}", "{header.q:d}", "[a"])
def test_a_string_stays_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    source = "from sinks.memory import MemorySink\nfrom sinks.base import SinkOptions\n"
    source += "class Options(SinkOptions):\n    queue: str\nclass Plugged(MemorySink):\n    Options = Options\n"
    plug_in(tmp_path, monkeypatch, "plugged", source)
    result = settings(tmp_path, DATABASE + 'sinks.x.type = "plugged"', {"RELAY_SINKS__X__QUEUE": text})
    assert result.sinks["x"].options.model_dump() == {"queue": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("1.5", 1.5),
        ("true", True),
        ('"4"', "4"),
        ("[1, 2]", [1, 2]),
        ('{"a": [1]}', {"a": [1]}),
        ("{ a = [1] }", {"a": [1]}),
        ("30s", "30s"),
        ("", ""),
        ("4\nother = 5", "4\nother = 5"),
        ("2024-01-01", "2024-01-01"),
        ("postgresql://u:p@h/db", "postgresql://u:p@h/db"),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("RELAY_DATABSE_URL", 'expected a known name (the nearest is "RELAY_DATABASE_URL"), got an unknown one'),
        (
            "RELAY_SINK__ORDERS__TYPE",
            'expected a known name (the nearest is "RELAY_SINKS__ORDERS__TYPE"), got an unknown one',
        ),
        ("RELAY_CONFIGS", 'expected a known name (the nearest is "RELAY_CONFIG"), got an unknown one'),
        (
            "RELAY_DATABASE_URLS",
            'database.urls: expected a known key (the nearest is "RELAY_DATABASE_URL"), got "RELAY_DATABASE_URLS"',
        ),
        (
            "RELAY_SINKS__ORDERS__WROKERS",
            "sinks.orders.wrokers: expected a known key "
            '(the nearest is "RELAY_SINKS__ORDERS__WORKERS"), got "RELAY_SINKS__ORDERS__WROKERS"',
        ),
        ("RELAY_SINKS__ORDRES__WORKERS", 'expected a configured sink (the nearest is "orders"), got "ordres"'),
        ("RELAY_SINKS__ORDERS__WORKERS", 'sinks.orders.workers: expected a whole number, got "x"'),
        ("RELAY_SINKS__ORDERS__KEEP", 'sinks.orders.keep: expected true or false, got "x"'),
        ("RELAY_SINKS__ORDERS__WORKERS__N", "expected a table at sinks.orders.workers, got something else"),
        ("RELAY_SINKS__ORDERS", 'sinks.orders: expected a table, got "x"'),
    ],
)
def test_a_wrong_variable(tmp_path: Path, name: str, problem: str) -> None:
    assert problems(tmp_path, MEMORY + "workers = 1", {name: "x"}) == [f"environment {name}: {problem}"]


def test_two_variables_for_one_key(tmp_path: Path) -> None:
    env = {"RELAY_LOG_LEVEL": "info", "RELAY_LOG__LEVEL": "debug"}
    assert problems(tmp_path, MEMORY, env) == [
        "environment RELAY_LOG__LEVEL: expected one variable for log.level, got RELAY_LOG_LEVEL as well"
    ]


def test_names_that_are_not_for_the_settings(tmp_path: Path) -> None:
    links = {"RELAY_PORT": "tcp://10.0.0.1:80", "RELAY_METRICS_SERVICE_HOST": "x", "RELAY_PORT_80_TCP_ADDR": "x"}
    env = {"PATH": "/bin", "KUBERNETES_SERVICE_HOST": "10.0.0.1", **links}
    assert settings(tmp_path, MEMORY, env).sinks["orders"].workers == 1
    del env["KUBERNETES_SERVICE_HOST"]
    assert len(problems(tmp_path, MEMORY, env)) == len(links)
