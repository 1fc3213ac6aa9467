"""Engines, which run executors."""
