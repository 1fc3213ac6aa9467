"""Claims to devices as the Kubernetes API has them (`resource.k8s.io/v1`), and the expressions that select devices."""
