"""The only wiring: settings in, a running server out."""
