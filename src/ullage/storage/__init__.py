"""Where state lives."""
