"""The SDK: callers of the HTTP API. Import it as `ullage`; nothing is imported here, to keep the command line quick."""
