"""Ullage places work on GPUs: fairly, tightly, close together, and says why."""

__version__ = "0.1.0"
