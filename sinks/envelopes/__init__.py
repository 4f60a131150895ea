"""What travels in place of a bare payload, each envelope with its options and their defaults. Read `envelope.py`
first.
"""
