"""HTTP servers that serve unknown callers within fixed limits of memory and time."""
