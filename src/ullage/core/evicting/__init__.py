"""Eviction: for a request, a gang or a session, and moves so that wide requests fit."""
