"""Rows that PostgreSQL takes, or refuses, and that no application in its right mind writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Columns = dict[str, str]
"""SQL expressions by column."""


@dataclass(frozen=True)
class Hostile:
    """One row."""

    name: str
    columns: Columns = field(hash=False)
    stays: bool = False
    """It is neither delivered nor dead: it waits for a time, or for a sink that somebody may configure."""


TEXTS: Final = {
    "empty": "''",
    "blank": "' '",
    "null word": "'null'",
    "newlines": r"E'a\r\nb: c\r\n\r\nd'",
    "control": r"E'\x01\x08\x1b[31m\x7f'",
    "bidi": "U&'\\202e\\2028\\feff'",
    "emoji": "U&'\\+01f600\\+01f3fd'",
    "noncharacter": "U&'\\ffff\\fffe'",
    "sql": "'''; drop table relay.outbox; --'",
    "path": "'../../../etc/passwd'",
    "slashes": "'a/b\\c'",
    "separators": "'a,b;c:d|e=f'",
    "place": "'{kind}{key}{header.x}'",
    "braces": "'{{}{'",
    "percent": "'%s%(id)s%'",
    "glob": "'*?[a-z]'",
    "python": "'__import__(\"os\")'",
    "number": "'1e400'",
    "long": "repeat('x', 255)",
    "long and wide": "repeat(U&'\\+01f600', 255)",
}

DEEP: Final = "('{\"a\":' || repeat('[', %d) || repeat(']', %d) || '}')::%s"

PAYLOADS: Final = {
    "null": "'null'",
    "text": "'\"x\"'",
    "number of many digits": "('1' || repeat('0', 200000))::json",
    "large exponent": "'1e999999'",
    "deep": DEEP % (3000, 3000, "json"),
    "half a surrogate pair": r"""'"\ud800"'""",
    "nul": r"""'["\u0000"]'""",
    "the same name twice": """'{"a":1,"a":[]}'""",
    "spaces": "(repeat(' ', 5000) || '1' || repeat(E'\\n', 5000))::json",
    "large": "to_json(repeat('x', 3000000))",
    "large, though it compresses": "to_json(repeat('ab', 1000000))",
    "many items": "(select json_agg(n) from generate_series(1, 20000) n)",
    "control": r"""'"\u001b[31m\u0001"'""",
    "noncharacter": r"""'"\uffff"'""",
}

HEADERS: Final = {
    "empty": "'{}'",
    "empty name": """'{"": ""}'""",
    "digits": """'{"n": 1e5000}'""",
    "as many digits as there are": """'{"n": 1e131071}'""",
    "fraction of many digits": "('{\"n\": 0.' || repeat('0', 16000) || '1}')::jsonb",
    "many long numbers": "(select jsonb_object_agg('n' || n, 1e5000::numeric) from generate_series(1, 99) n)",
    "large float": """'{"n": 1.5e308, "m": 1.5e-320, "o": -0.0, "p": 18446744073709551616}'""",
    "deep": DEEP % (3000, 3000, "jsonb"),
    "a little too deep": DEEP % (150, 150, "jsonb"),
    "as deep as may be": DEEP % (90, 90, "jsonb"),
    "wide": "(select jsonb_object_agg('h' || n, n) from generate_series(1, 2000) n)",
    "separators in names": r"""'{"a:b": 1, "a\nb": "c\r\nd", "a b": null, "=": "=", "a.b": true}'""",
    "unicode names": r"""'{"é": "ü", "\u2028": "\ufeff", "\uffff": "\uffff"}'""",
    "own names": """'{"message_id": "x", "kind": "x", "key": "x", "created_at": "x", "payload": "x"}'""",
    "nested": """'{"a": {"b": [1, {"c": null}]}}'""",
    "large": "jsonb_build_object('h', repeat('x', 300000))",
    "job attributes that are none": """'{"sidekiq": 1}'""",
    "job attributes of wrong types": """'{"sidekiq": {"retry": 1e400, "queue": [], "tags": {"a": 1}, "at": "x"}}'""",
    "job attributes of our own": """'{"sidekiq": {"jid": "x", "class": "x", "args": 1, "created_at": "x"}}'""",
    "time that is a text": """'{"relay.at": "tomorrow"}'""",
    "time that is no time": """'{"relay.at": 1e300}'""",
    "time that is an object": """'{"relay.at": {}}'""",
    "time before all": """'{"relay.at": -1e18}'""",
    "queue": """'{"queue": "../x"}'""",
    "queue that is a list": """'{"queue": ["x"]}'""",
    "a list": "'[]'",
    "null": "'null'",
    "a number": "'1'",
}

OTHERS: Final = {
    "nil uuid": {"message_id": "'00000000-0000-0000-0000-000000000000'"},
    "same uuid": {"message_id": "'ffffffff-ffff-ffff-ffff-ffffffffffff'"},
    "same uuid again": {"message_id": "'ffffffff-ffff-ffff-ffff-ffffffffffff'"},
    "no uuid": {"message_id": "null"},
    "run at -infinity": {"run_at": "'-infinity'"},
    "run at infinity": {"run_at": "'infinity'"},
    "run at the first day": {"run_at": "'4713-01-01 00:00:00 BC'"},
    "run at the epoch": {"run_at": "'epoch'"},
    "no attempts": {"max_attempts": "0"},
    "fewer attempts": {"max_attempts": "-1"},
    "all attempts": {"max_attempts": "2147483647"},
    "one attempt": {"max_attempts": "1"},
    "empty dedupe_key": {"dedupe_key": "''"},
    "empty dedupe_key again": {"dedupe_key": "''"},
    "long dedupe_key": {"dedupe_key": "repeat('x', 1024)"},
    "too long dedupe_key": {"dedupe_key": "repeat('x', 1025)"},
    "long key": {"key": "repeat('k', 100000)"},
    "very long key": {"key": "repeat('k', 2000000)"},
    "no body": {"body": "''", "payload": "null"},
    "bytes": {"body": r"'\x00ff00fe'", "payload": "null"},
    "many bytes": {"body": "decode(repeat('00ff', 1000000), 'hex')", "payload": "null"},
    "both": {"body": "''"},
    "neither": {"payload": "null"},
    "created at the first day": {"created_at": "'4713-01-01 00:00:00 BC'"},
    "created at infinity": {"created_at": "'infinity'"},
    "created at -infinity": {"created_at": "'-infinity'"},
    "created at the last day": {"created_at": "'294276-12-31'"},
    "created in the year 2": {"created_at": "'0002-01-01'"},
}

WAITING: Final = (
    Hostile("run at the last day", {"run_at": "'294276-12-31'"}, stays=True),
    Hostile("sink that is not there", {"sink": "'no-such-sink'"}, stays=True),
    Hostile("sink like SQL", {"sink": "'x''; drop table relay.outbox; --'"}),
    Hostile("sink like a path", {"sink": "'../main'"}),
    Hostile("sink of 64 characters", {"sink": "repeat('a', 64)"}),
    Hostile("thousands of sinks", {"sink": "repeat('a,', 2000) || 'b'"}),
    Hostile("sink of many letters", {"sink": "repeat('x', 20000)"}),
)

HOSTILE: Final = (
    *(Hostile(f"kind: {name}", {"kind": text}) for name, text in TEXTS.items()),
    *(Hostile(f"key: {name}", {"key": text}) for name, text in TEXTS.items()),
    *(Hostile(f"payload: {name}", {"payload": text}) for name, text in PAYLOADS.items()),
    *(Hostile(f"headers: {name}", {"headers": text}) for name, text in HEADERS.items()),
    *(Hostile(name, columns) for name, columns in OTHERS.items()),
    *WAITING,
)

REFUSED: Final = {
    "kind: empty", "headers: a list", "headers: null", "headers: a number", "no uuid", "run at infinity", "no attempts",
    "fewer attempts", "too long dedupe_key", "both", "neither",
    "sink like SQL", "sink like a path", "sink of 64 characters", "sink of many letters", "thousands of sinks",
}  # fmt: skip
"""Those that the insert refuses."""
