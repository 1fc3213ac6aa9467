"""Replay of traces: what a policy would have done with recorded or drawn arrivals, on the live core."""
