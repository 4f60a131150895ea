"""Kafka: at least once by an idempotent producer (`plain.py`), or exactly once in transactions (`transactions.py`).
Read `sink.py` first; what travels is in `records.py`.
"""
