"""Zones and links inside machines."""
