"""What `relay status --check` looks for in the database, beside what the table of `relay status` shows.

Each is one statement without parameters, `sql/admin/findings/NAME.sql`. It answers one column, a line for each thing
found that says what is wrong, since when where that is known, and what to do.
"""

from __future__ import annotations

from typing import Final

from relay.database.connection import Database
from relay.errors import DatabaseUnavailable, RelayError
from relay.statements import statement

FINDINGS: Final = (
    "blocked_keys",
    "publications",
    "restored_schema",
    "row_security",
    "share_gaps",
    "stranded_messages",
    "unserved_sinks",
    "unsettled_claims",
    "waiting_relays",
)


def find(database: Database) -> list[str]:
    """Every line found.

    Raises:
        DatabaseUnavailable: try again later.
    """
    found: list[str] = []
    for name in FINDINGS:
        try:
            found += [line for (line,) in database.query(statement(f"admin/findings/{name}"))]
        except DatabaseUnavailable:
            raise
        except RelayError as error:
            found.append(f"could not look for {name.replace('_', ' ')}: {error}")
    return found
