"""The API server client: kinds and objects, writes, watches, and the lease for leader election."""
