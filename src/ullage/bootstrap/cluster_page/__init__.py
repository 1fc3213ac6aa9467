"""What people look at of a cluster: the live page of `ullage kube`, its overview, and plans."""
