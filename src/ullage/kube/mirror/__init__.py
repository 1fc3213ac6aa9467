"""The state of nodes and pods, read from the API into the books."""
