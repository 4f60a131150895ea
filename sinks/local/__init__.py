"""Python functions as a sink: the table queue itself, in threads or in processes. Read `sink.py` first. Applications
import what a handler gets and may raise from here.
"""

from sinks.local.message import Hold, Message, Reject, Retry

__all__ = ["Hold", "Message", "Reject", "Retry"]
