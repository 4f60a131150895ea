"""Benchmarks: `python -m benchmarks` runs all, `python -m benchmarks.NAME [--check]` one."""
