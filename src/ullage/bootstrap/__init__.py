"""The only place that wires the parts together: from settings to a running server."""
