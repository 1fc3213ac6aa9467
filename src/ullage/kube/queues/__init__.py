"""Pods that wait for their turn."""
