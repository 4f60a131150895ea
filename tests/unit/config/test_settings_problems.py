"""Everything that can be wrong with a configuration, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.configured import DATABASE, MEMORY, problems, problems_of, write

WHOLE = "expected a whole number, got"
SIZE = 'expected a size such as "256KiB", "4MiB", "1MB" or a number of bytes, got'
DURATION = 'expected a duration such as "500ms", "30s", "10m", "1h", "7d" or a number of seconds, got'
CONNECTION = "expected a PostgreSQL connection string, postgresql://user@host/database or key=value, got"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("workers = 0", "sinks.orders.workers: expected at least 1, got 0"),
        ("workers = true", f"sinks.orders.workers: {WHOLE} true"),
        ("workers = 1.5", f"sinks.orders.workers: {WHOLE} 1.5"),
        ('workers = "many"', f'sinks.orders.workers: {WHOLE} "many"'),
        ("batch_messages = 0", "sinks.orders.batch_messages: expected at least 1, got 0"),
        ("batch_bytes = 0", "sinks.orders.batch_bytes: expected a size of 1 to 2147483647 whole bytes, got 0"),
        ('batch_bytes = "4XB"', f'sinks.orders.batch_bytes: {SIZE} "4XB"'),
        ("max_attempts = 3000000000", "sinks.orders.max_attempts: expected at most 2147483647, got 3000000000"),
        ('lease = "soon"', f'sinks.orders.lease: {DURATION} "soon"'),
        ("lease = -1", f"sinks.orders.lease: {DURATION} -1"),
        ("lease = inf", f"sinks.orders.lease: {DURATION} Infinity"),
        ('send_timeout = "0s"', 'sinks.orders.send_timeout: expected a duration above zero, got "0s"'),
        ('lease = "19s"', 'sinks.orders.lease: expected at least twice send_timeout (20s), got "19s"'),
        (
            'send_timeout = "16s"',
            "sinks.orders.lease: expected at least twice send_timeout (32s), got 30.0 (the default)",
        ),
        ('backoff.base = "11m"', "sinks.orders.backoff.max: expected at least base (11m), got 600.0 (the default)"),
        ('backoff = { base = "2s", max = 1 }', "sinks.orders.backoff.max: expected at least base (2s), got 1"),
        ('backoff.max = "3651d"', 'sinks.orders.backoff.max: expected a duration of at most 10 years, got "3651d"'),
        ("backoff = 5", "sinks.orders.backoff: expected a table, got 5"),
        ('order = "keys"', "sinks.orders.order: expected 'none' or 'key', got \"keys\""),
        ('after_dead = "stop"', "sinks.orders.after_dead: expected 'skip' or 'block', got \"stop\""),
        ("shards = 1025", "sinks.orders.shards: expected at most 1024, got 1025"),
        ("strict = 7", "sinks.orders.strict: expected true or false, got 7"),
        ("client = []", "sinks.orders.client: expected a table, got []"),
        ("keep = 7", "sinks.orders.keep: expected true or false, got 7"),
        ("wrokers = 1", 'sinks.orders.wrokers: expected a known key (the nearest is "workers"), got "wrokers"'),
        ("keeps = 1", 'sinks.orders.keeps: expected a known key (the nearest is "keep"), got "keeps"'),
        ("backoff.bse = 1", 'sinks.orders.backoff.bse: expected a known key (the nearest is "base"), got "bse"'),
    ],
)
def test_a_wrong_key_of_a_sink(tmp_path: Path, line: str, problem: str) -> None:
    assert problems(tmp_path, MEMORY + line) == [f"relay.toml: {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            "database.url: expected a PostgreSQL connection string here or in RELAY_DATABASE_URL, got nothing",
        ),
        ('database.url = ""', f'database.url: {CONNECTION} ""'),
        ('database.url = "mysql://root:pw@db/app"', f'database.url: {CONNECTION} "mysql://root:***@db/app"'),
        ('database.url = "host=db colour=red"', f'database.url: {CONNECTION} "host=*** colour=***"'),
        ('database.url = "postgresql://db/app?pasword=pw"', f'database.url: {CONNECTION} "postgresql://db/app?***"'),
        ('database.url = "postgresql//db/app?pasword=pw"', f'database.url: {CONNECTION} "postgresql//db/app?***"'),
        ("database.url = \"host=db pasword = 'p w'\"", f'database.url: {CONNECTION} "host=*** pasword = ***"'),
        ('database.url = "postgresql://me:p@w@db/app"', f'database.url: {CONNECTION} "postgresql://me:***@db/app"'),
        ('database.url = "postgresql://me:p/w@db/app"', f'database.url: {CONNECTION} "postgresql://me:***@db/app"'),
        ('database = "postgresql://u:pw@db/app"', 'database: expected a table, got "postgresql://u:***@db/app"'),
        (DATABASE + "sinks = 5", "sinks: expected a table, got 5"),
        (DATABASE + "sinks.orders = 5", "sinks.orders: expected a table, got 5"),
        (DATABASE + "[sinks.orders]", "sinks.orders.type: expected a sink type, got nothing"),
        (DATABASE + "sinks.orders.type = 5", "sinks.orders.type: expected a string, got 5"),
        (
            DATABASE + 'sinks.orders.type = "memroy"',
            'sinks.orders.type: expected an installed sink type (the nearest is "memory"), got "memroy"',
        ),
        (DATABASE + "routes = {}", "routes: expected a list, got {}"),
        (DATABASE + "routes = [5]", "routes[0]: expected a table, got 5"),
        (DATABASE + "log.level = 5", "log.level: expected 'debug', 'info', 'warning' or 'error', got 5"),
        (DATABASE + "[sink.x]", 'sink: expected a known key (the nearest is "sinks"), got "sink"'),
        (DATABASE + "zzz = 1", 'zzz: expected a known key (one of database, log, routes, sinks), got "zzz"'),
        (DATABASE + '"a key" = 1', '"a key": expected a known key (one of database, log, routes, sinks), got "a key"'),
    ],
)
def test_a_wrong_section(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [f"relay.toml: {problem}"]


@pytest.mark.parametrize("name", ["Orders", "a.b", "ümlaut", "", "x" * 64, "unrouted"])
def test_a_wrong_sink_name(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, f'{DATABASE}[sinks."{name}"]\ntype = "memory"') == [
        f"relay.toml: sinks.{_key(name)}: expected a sink name of 1 to 63 characters from "
        f'a-z, 0-9, "_" and "-", not "unrouted", got "{name}"'
    ]


def _key(name: str) -> str:
    return name if name.isascii() and name.isalnum() else f'"{name}"'


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('kind = "*"', "sink: expected a value, got nothing"),
        ('sink = "orders"', "kind: expected a value, got nothing"),
        ('kind = ""\nsink = "orders"', 'kind: expected a string of at least 1 character(s), got ""'),
        ('kind = "*"\nsink = "order"', 'sink: expected a configured sink (the nearest is "orders"), got "order"'),
        ('kind = "*"\nsink = "unrouted"', 'sink: expected a configured sink (one of orders), got "unrouted"'),
        (
            'kind = "*"\nsink = "orders"\nshare = [50, 50]',
            "share: expected two rising numbers from 0 to 100, such as [0, 50], got [50, 50]",
        ),
        ('kind = "*"\nsink = "orders"\nshare = [0, 101]', "share[1]: expected at most 100, got 101"),
        ('kind = "*"\nsink = "orders"\nshare = [-1, 5]', "share[0]: expected at least 0, got -1"),
        ('kind = "*"\nsink = "orders"\nshare = [0, true]', "share[1]: expected a whole number, got true"),
        ('kind = "*"\nsink = "orders"\nshare = [0]', "share[1]: expected a value, got nothing"),
        ('kind = "*"\nsink = "orders"\nshare = 50', "share: expected a list, got 50"),
        (
            'kind = "*"\nsink = "orders"\nshares = [0, 1]',
            'shares: expected a known key (the nearest is "share"), got "shares"',
        ),
    ],
)
def test_a_wrong_route(tmp_path: Path, lines: str, problem: str) -> None:
    expected = problem if problem.startswith("[") else f".{problem}"
    assert problems(tmp_path, f"{MEMORY}[[routes]]\n{lines}") == [f"relay.toml: routes[0]{expected}"]


def test_a_route_where_no_sink_is(tmp_path: Path) -> None:
    assert problems(tmp_path, DATABASE + '[[routes]]\nkind = "*"\nsink = "orders"') == [
        'relay.toml: routes[0].sink: expected a configured sink (there is none), got "orders"'
    ]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = """
    database = { url = "mysql:", timout = 1 }
    colour = "red"
    [sinks.a]
    type = "memory"
    workers = 0
    keep = "perhaps"
    lease = "1s"
    [sinks.b]
    type = "none"
    max_attempts = 0
    [[routes]]
    kind = ""
    sink = "c"
    share = [1, 1]
    """
    found = problems(tmp_path, text, {"RELAY_COLOUR": "red"})
    assert found[0].startswith('environment RELAY_COLOUR: expected a known name (the nearest is "RELAY_ROUTES")')
    assert [line.split(": ")[1] for line in found[1:]] == [
        "colour",
        *("database.timout", "database.url"),
        *("sinks.a.workers", "sinks.a.lease", "sinks.a.keep", "sinks.b.max_attempts", "sinks.b.type"),
        *("routes[0].sink", "routes[0].kind", "routes[0].share"),
    ]
    assert {line.split(": ")[0] for line in found[1:]} == {"relay.toml"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[database\n", "expected TOML, got: Expected ']' at the end of a table declaration (at line 1, column 10)"),
        (b"x = '\xff'", "expected UTF-8 text, got: invalid start byte at byte 5"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, problem: str) -> None:
    file = write(tmp_path, "")
    file.write_bytes(content)
    assert problems_of(file) == [f"relay.toml: {problem}"]


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").mkdir()
    assert problems_of(tmp_path / "relay.toml") == ["relay.toml: expected a readable file, got: Is a directory"]


KAFKA = """
type = "kafka"
client = { "bootstrap.servers" = "b:1", "security.protocol" = "ssl", "ssl.ca.location" = "/no/ca" }
"""


@pytest.mark.parametrize(
    "sink",
    [
        'type = "redis-stream"\nurl = "rediss://h/0?ssl_ca_certs=/no/ca"',
        'type = "sidekiq"\nqueue = "q"\nurl = "rediss+sentinel://h/service/0"\nclient.ssl_certfile = "/no/ca"',
        'type = "redis-stream"\nurl = "rediss+cluster://h"\nclient.ssl_keyfile = "/no/ca"',
        'type = "sqs"\nqueue = "q"\nregion = "eu-west-1"\nclient.verify = "/no/ca"',
        KAFKA,
    ],
)
def test_a_file_that_a_client_needs_must_be_there(tmp_path: Path, sink: str) -> None:
    """A library would find out when it connects, and some of them in the middle of a batch."""
    (problem,) = problems(tmp_path, f"{DATABASE}[sinks.x]\n{sink}")
    assert problem.startswith("relay.toml: sinks.x.client")
    assert "/no/ca" in problem


def test_the_file_is_not_blamed_for_a_sink_of_the_environment(tmp_path: Path) -> None:
    variables = {"RELAY_SINKS__MAIL__TYPE": "redis-stream", "RELAY_SINKS__MAIL__WORKERS": "0"}
    assert problems(tmp_path, DATABASE, variables) == [
        "environment RELAY_SINKS__MAIL__WORKERS: sinks.mail.workers: expected at least 1, got 0",
        "environment RELAY_SINKS__MAIL__…: sinks.mail.url: expected a value, got nothing",
    ]
    assert problems(
        tmp_path, f'{DATABASE}[sinks.mail]\ntype = "redis-stream"', {"RELAY_SINKS__MAIL__WORKERS": "1"}
    ) == [
        "relay.toml: sinks.mail.url: expected a value, got nothing",
    ]


def test_a_shadow_route_is_refused_until_it_works(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, MEMORY + '[[routes]]\nkind = "*"\nsink = "orders"\nshadow = true')
    assert problem.startswith("relay.toml: routes[0].shadow: expected false: shadow routes do not work yet")
