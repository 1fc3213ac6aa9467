"""What the API server asks before a pod is made or changed."""
