"""Schemas of what crosses a boundary, and their conversion."""
