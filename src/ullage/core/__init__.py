"""Decisions: pure functions over the books; no clock, no randomness, no I/O."""
