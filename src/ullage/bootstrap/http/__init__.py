"""HTTP servers that answer unknown callers within fixed bounds of memory and time."""
