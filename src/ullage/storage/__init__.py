"""Stores of the server's state: SQLite in a file, or in memory until the process ends.

`ullage.storage.open.open_store` returns an implementation of the port `Store`.
"""
