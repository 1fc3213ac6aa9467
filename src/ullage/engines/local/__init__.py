"""Executors as processes on this machine."""
