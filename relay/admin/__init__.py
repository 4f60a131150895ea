"""What commands do, without their options and their output. Read `status.py` first, then `apply.py`."""
