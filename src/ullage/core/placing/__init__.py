"""Placement of requests, one by one or together, with respect to room reserved for others."""
