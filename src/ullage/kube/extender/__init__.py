"""The scheduler extender: the verbs that kube-scheduler asks, and what answers them."""
