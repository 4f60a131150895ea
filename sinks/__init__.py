"""Sinks: adapters from a batch of messages to one broker. Nothing here imports `relay`."""
