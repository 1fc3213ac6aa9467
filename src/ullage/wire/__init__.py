"""Schemas of messages and files that other programs read or write, and their conversion."""
