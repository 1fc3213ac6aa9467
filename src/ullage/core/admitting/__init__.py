"""Which waiting requests are tried, and in which order."""
