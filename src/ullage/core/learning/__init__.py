"""The learned workload, and how much of what is idle it can use."""
