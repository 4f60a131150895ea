"""Amazon SQS, standard and FIFO queues, ten messages a call. Read `sink.py` first, then `entries.py` and
`sending.py`.
"""
