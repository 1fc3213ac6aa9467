"""Zones and links inside machines: hints, their merge, what is taken, and why not."""
