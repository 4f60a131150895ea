"""The tests' own PostgreSQL: each test gets a database to itself, on each version."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers.postgres import every_postgres, new_cluster, with_database


@every_postgres
def test_a_version_can_be_asked_for(postgres: str, request: pytest.FixtureRequest) -> None:
    with psycopg.connect(postgres) as connection:
        asked = request.node.callspec.params["postgres"]
        assert connection.info.server_version // 10000 == asked


@pytest.mark.parametrize("_time", range(2))
def test_each_test_has_an_empty_database(database_url: str, _time: int) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("create table left_behind ()")


def test_a_cluster_keeps_its_data_when_restarted() -> None:
    with new_cluster() as cluster:
        with cluster.run(), psycopg.connect(cluster.url()) as connection:
            connection.execute("create table kept ()")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(cluster.url())
        with cluster.run(max_connections=17), psycopg.connect(cluster.url()) as connection:
            connection.execute("select from kept")
            assert connection.execute("show max_connections").fetchone() == ("17",)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u@h:1/a", "postgresql://u@h:1/b"),
        ("postgresql://u@h:1", "postgresql://u@h:1/b"),
        ("postgresql:///a?host=/tmp", "postgresql:///b?host=/tmp"),
        ("postgresql://h?sslmode=disable", "postgresql://h/b?sslmode=disable"),
    ],
)
def test_a_url_can_name_another_database(url: str, expected: str) -> None:
    assert with_database(url, "b") == expected


@every_postgres
@pytest.mark.parametrize("_time", range(2))
def test_each_test_has_a_database_with_the_relays_schema(relay_database_url: str, _time: int) -> None:
    with psycopg.connect(relay_database_url) as connection:
        connection.execute("insert into relay.outbox (kind, payload) values ('kind', '1')")
        assert connection.execute("select count(*) from relay.outbox").fetchone() == (1,)
