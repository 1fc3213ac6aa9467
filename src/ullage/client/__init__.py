"""The SDK: callers of the HTTP API."""
