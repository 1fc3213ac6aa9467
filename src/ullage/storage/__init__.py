"""Where state lives: SQLite in a file, or in memory and gone when the process ends.

`ullage.storage.open.open_store` is the only way in; what it returns speaks the `Store` port.
"""
