"""One connection that comes back, locks that make no application wait long, and the schema with its migrations. Every
statement is a file in `sql/`. Read `connection.py` first.
"""
