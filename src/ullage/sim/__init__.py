"""Replay of traces: simulates policies on recorded or drawn arrivals, with the scheduler's own core."""
