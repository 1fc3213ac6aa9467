"""The adapter between Ullage and the Kubernetes API: objects, calls, caches (informers) and leader election.

Nothing here decides about placement.
"""
