"""What data leaves undone that was restored or replicated without its triggers or sequences: found, and repaired."""

from __future__ import annotations

from typing import NamedTuple

from relay.database.connection import Database
from relay.database.locks import Say, with_patience
from relay.statements import statement


class Restored(NamedTuple):
    """What data that came without triggers or sequences leaves undone."""

    is_uncompiled: bool
    is_behind: bool

    def problems(self) -> list[str]:
        """In words; none where nothing is to be done."""
        found = []
        if self.is_uncompiled:
            found.append("routes are in the database, but not compiled")
        if self.is_behind:
            found.append("the next ids lie below those of messages that are there")
        return found


def restored(database: Database) -> Restored:
    """Look."""
    return Restored(*(bool(wrong) for wrong in database.query(statement("admin/upkeep/restored"))[0]))


def repair(database: Database, *, say: Say) -> list[str]:
    """Compile routes and advance ids, where that is to be done; what was done.

    Args:
        say: told what it waits for.

    Raises:
        RelayError: a lock could not be had, or this role may not.
    """

    def work() -> list[str]:
        found = restored(database)
        with database.transaction() as conn:
            conn.execute(statement("admin/apply/begin_apply"))
            if found.is_uncompiled:
                conn.execute(statement("admin/upkeep/recompile"))
            if found.is_behind:
                conn.execute(statement("admin/upkeep/advance_ids"))
        return found.problems()

    return with_patience(work, database, say) if any(restored(database)) else []
