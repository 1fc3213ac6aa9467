"""Why something waits: reasons, sentences and what would help."""
