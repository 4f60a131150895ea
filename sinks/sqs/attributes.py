"""Headers as attributes of an SQS message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sinks.wire import digits_kept, header_text

MOST_ATTRIBUTES: Final = 10
"""Per message; AWS `quotas-messages`."""

PACKED: Final = "headers"
ENCODING: Final = "content-encoding"
_OURS = frozenset({"message_id", "kind", "created_at", ENCODING, PACKED})

ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not have, and so SQS neither."""
_ATTRIBUTE_NAME = re.compile(r"(?!(?i:aws|amazon)\.)(?!.*\.\.)[A-Za-z0-9_-](?:[A-Za-z0-9_.-]{0,254}[A-Za-z0-9_-])?")


def add_headers(texts: dict[str, str], headers: Mapping[str, Any], skip: str | None) -> None:
    """Add an attribute for each header that may be one, and `headers` with the others, if there are any."""
    fitting: dict[str, str] = {}
    packed: dict[str, Any] = {}
    for name in sorted(headers):
        if name == skip:
            continue
        text = header_text(headers[name])
        if not text or name in _OURS or not _attribute_name(name) or ILLEGAL.search(text):
            packed[name] = headers[name]
        else:
            fitting[name] = text
    room = MOST_ATTRIBUTES - len(texts)
    if packed or len(fitting) > room:
        for name in list(fitting)[room - 1 :]:
            packed[name] = headers[name]
            del fitting[name]
    texts.update(fitting)
    if packed:
        # Pure ASCII: what XML does not have is escaped, so it can travel here.
        texts[PACKED] = digits_kept(dict(sorted(packed.items())), ascii_only=True)


@lru_cache(maxsize=1024)
def _attribute_name(name: str) -> bool:
    return _ATTRIBUTE_NAME.fullmatch(name) is not None
