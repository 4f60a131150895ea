"""Who may send which messages, and what becomes of them: claims of single rows (`rows.py`) and of whole shards, for
order (`shards.py`), and what a settle writes. Read `claim.py` first, then `rows.py`.
"""
