"""What an application imports to write messages, on whatever connection it has. It imports no engine, no broker and
no library. Read `outbox.py` first; `messages.py` says what may be written.
"""
