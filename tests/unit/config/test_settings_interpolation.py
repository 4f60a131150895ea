"""`${NAME}` and `${file:…}` in configured strings."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.unit.configured import DATABASE, MEMORY, problems, settings


def test_variables_and_files_in_any_string(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p w\n")
    text = f"""
    [database]
    url = "postgresql://${{USER}}:${{DB_PASSWORD}}@db/app"
    [sinks.orders]
    type = "memory"
    workers = "${{N}}"
    lease = "${{LEASE}}m"
    client = {{ password = "${{file:{secret}}}", nested = [["${{USER}}"]] }}
    """
    result = settings(tmp_path, text, {"USER": "me", "DB_PASSWORD": "pw", "N": "4", "LEASE": "2"})
    assert result.database.url == "postgresql://me:pw@db/app"
    sink = result.sinks["orders"]
    assert (sink.workers, sink.lease) == (4, 120.0)
    assert sink.client == {"password": "p w", "nested": [["me"]]}


@pytest.mark.parametrize(
    ("content", "value"), [(b"x\n", "x"), (b"x\r\n", "x"), (b"x\n\n", "x\n"), (b" x", " x"), (b"", "")]
)
def test_a_files_last_line_end_is_dropped(tmp_path: Path, content: bytes, value: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    result = settings(tmp_path, MEMORY + f'client.x = "${{file:{secret}}}"')
    assert result.sinks["orders"].client == {"x": value}


def test_two_dollars_stand_for_one(tmp_path: Path) -> None:
    result = settings(tmp_path, MEMORY + 'client = { a = "$${X}", b = "$X $", c = "$${X}${X}" }', {"X": "1"})
    assert result.sinks["orders"].client == {"a": "${X}", "b": "$X $", "c": "${X}1"}


def test_the_environments_values_are_interpolated_too(tmp_path: Path) -> None:
    env = {"RELAY_DATABASE_URL": "postgresql://u:${DB_PASSWORD}@db/app", "DB_PASSWORD": "pw"}
    assert settings(tmp_path, "", env).database.url == "postgresql://u:pw@db/app"


def test_what_the_environment_replaces_needs_no_variable(tmp_path: Path) -> None:
    text = 'database.url = "postgresql://u:${DB_PASSWORD}@db/app"'
    env = {"RELAY_DATABASE_URL": "postgresql://other/app"}
    assert settings(tmp_path, text, env).database.url == "postgresql://other/app"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${DB_PASSWORD}", "expected the environment variable DB_PASSWORD to be set, got nothing"),
        ("${file:/nowhere/x}", "expected a readable file /nowhere/x, got No such file or directory"),
        ("${}", "expected ${NAME} or ${file:/path} ($${ for a plain ${), got ${}"),
        ("${A:-b}", "expected ${NAME} or ${file:/path} ($${ for a plain ${), got ${A:-b}"),
    ],
)
def test_a_reference_that_leads_nowhere(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, f'database.url = "{text}"') == [f"relay.toml: database.url: {problem}"]
    # Once only: that it would be no number either is not told.
    assert problems(tmp_path, MEMORY + f'workers = "{text}"') == [f"relay.toml: sinks.orders.workers: {problem}"]
    env = {"RELAY_SINKS__ORDERS__TYPE": text}
    assert problems(tmp_path, DATABASE, env) == [f"environment RELAY_SINKS__ORDERS__TYPE: sinks.orders.type: {problem}"]


def test_a_secret_file_that_is_no_text(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\xff")
    assert problems(tmp_path, f'database.url = "${{file:{secret}}}"') == [
        f"relay.toml: database.url: expected a readable file {secret}, got no UTF-8 text"
    ]


ODD = ["p@ss/w%rd", "a b", "x?y#z", "'\"\\", "100%", ":", "${X}", "ü", ""]


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://relay:${PW}@db,db2:5433/app",
        "postgresql://db/app?user=relay&password=${PW}",
        "host=db password='${PW}' dbname=app",
    ],
)
def test_a_password_may_hold_any_character(tmp_path: Path, url: str, password: str) -> None:
    """Wherever a reference stands in a connection string: as user information, in a query, as a word. Broken in the
    same way could be: a user, a database's name, a password in a file, a broker's URL; hosts stay as they are."""
    result = settings(tmp_path, f'database.url = "{url}"', {"PW": password})
    assert conninfo_to_dict(result.database.url).get("password", "") == password


def test_references_in_other_places_of_a_url(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("a@b/c")
    client = """
    client.a = "redis://${LOGIN}@${HOST}/0?${QUERY}"
    client.b = "redis://:${file:FOLDER/pw}@h"
    client.c = "${HOST}"
    client.d = "https://h/${PATH}/x"
    client.e = "rediss://${USER}@h:1,${HOST}/service/0"
    """.replace("FOLDER", str(tmp_path))
    env = {"LOGIN": "me:p@w", "HOST": "a:1,b:2", "QUERY": "db=1&ssl=true", "PATH": "a/b c", "USER": "ü"}
    assert settings(tmp_path, MEMORY + client, env).sinks["orders"].client == {
        "a": "redis://me:p%40w@a:1,b:2/0?db=1&ssl=true",
        "b": "redis://:a%40b%2Fc@h",
        "c": "a:1,b:2",
        "d": "https://h/a/b%20c/x",
        "e": "rediss://%C3%BC@h:1,a:1,b:2/service/0",
    }


@pytest.mark.parametrize("password", ODD)
def test_nothing_of_a_password_is_shown(tmp_path: Path, password: str) -> None:
    """Also where the rest of the URL is wrong, and where the variable is not named like a secret."""
    (line,) = problems(tmp_path, 'database.url = "mysql://relay:${X}@db/app"', {"X": f"s3{password}cret"})
    assert line.endswith('got "mysql://relay:***@db/app"')
