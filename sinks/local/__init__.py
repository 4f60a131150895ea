"""Python functions as a sink: the table queue itself, in threads or in processes. Read `sink.py` first."""
