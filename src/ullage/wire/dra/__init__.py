"""Device claims of the Kubernetes API (`resource.k8s.io/v1`), and the expressions that select devices."""
