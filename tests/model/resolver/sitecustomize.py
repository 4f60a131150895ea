"""Python's start-up in a relay of the model: one name leads each relay by a way of its own.

All relays must deliver to what their files call the same place, or they wait for each other. So the files have a name,
and MODEL_PORTS says, for each name, behind which port of this machine that is for this relay.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

PORTS: dict[str, int] = json.loads(os.environ.get("MODEL_PORTS", "{}"))
_resolve = socket.getaddrinfo


def _getaddrinfo(host: Any, port: Any, *arguments: Any, **keys: Any) -> Any:
    if host in PORTS:
        return _resolve("127.0.0.1", PORTS[host], *arguments, **keys)
    return _resolve(host, port, *arguments, **keys)


socket.getaddrinfo = _getaddrinfo
