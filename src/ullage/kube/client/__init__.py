"""Talking to an API server: its kinds and objects, changes, watches, and the lease of who leads."""
