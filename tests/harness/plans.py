"""The plans of the statements that the relay really runs: its own code, over a connection that explains as it goes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg.sql import Literal

from relay.claims.places import Places
from relay.database.connection import Database
from relay.statements import folder

PARAMETER = re.compile(r"%\((\w+)\)s")
QUICK_NODES = ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable")


class Plan:
    """What one statement did, as EXPLAIN ANALYZE says."""

    def __init__(self, name: str, root: Mapping[str, Any]) -> None:
        self.name = name
        self._nodes = list(_nodes(root))

    def slow_nodes(self, table: str) -> set[str]:
        """How it reads the table, where that is not by an index or by place."""
        ways = {node["Node Type"] for node in self._nodes if node.get("Relation Name") == table}
        return ways - set(QUICK_NODES)

    @property
    def most_rows(self) -> float:
        """Rows that one of its nodes looked at, the most of any."""
        return max(
            float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self._nodes
        )

    @property
    def most_pages(self) -> int:
        """Pages that it touched, those of indexes too."""
        return max(int(node["Shared Hit Blocks"] + node["Shared Read Blocks"]) for node in self._nodes)


class ExplainedDatabase(Database):
    """A `Database` that explains each of our statements, undoes that, and runs it."""

    generic: bool = False
    """Explain the plan that is made for any parameters, not that for the ones at hand."""

    def __init__(self, url: str, *, pooled: bool = False) -> None:
        super().__init__(url, pooled=pooled)
        self.plans: list[Plan] = []

    def connection(self) -> psycopg.Connection[Any]:
        new = not self.connected
        conn = super().connection()
        if new:
            database, files = self, {path.read_text(): path.stem for path in folder().rglob("*.sql")}

            class Explaining(psycopg.Cursor[Any]):
                def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
                    if query in files:
                        database.plans.append(database._explain(conn, files[query], query, params))
                    return super().execute(query, params, **options)

            conn.cursor_factory = Explaining
        return conn

    def _explain(self, conn: psycopg.Connection[Any], name: str, query: str, params: Any) -> Plan:
        with conn.transaction(force_rollback=True):
            cursor = psycopg.Cursor(conn)
            explain = "explain (analyze, buffers, timing off, format json) "
            if self.generic and params:
                cursor.execute("set local plan_cache_mode = force_generic_plan")
                names = list(dict.fromkeys(PARAMETER.findall(query)))
                numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", query).replace("%%", "%")
                cursor.execute(f"prepare explained as {numbered}".encode())
                values = ", ".join(_literal(params[name], conn) for name in names)
                cursor.execute(f"{explain} execute explained ({values})".encode())
                row = cursor.fetchone()
                cursor.execute("deallocate explained")
            else:
                row = cursor.execute((explain + query).encode(), params, prepare=False).fetchone()
        assert row
        return Plan(name, row[0][0]["Plan"])


def _literal(value: Any, conn: psycopg.Connection[Any]) -> str:
    if isinstance(value, Places):
        places = ((int.from_bytes(place[:4]), int.from_bytes(place[4:])) for place in value)
        return "'{" + ",".join(f'"({page},{line})"' for page, line in places) + "}'::tid[]"
    return Literal(value).as_string(conn)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
