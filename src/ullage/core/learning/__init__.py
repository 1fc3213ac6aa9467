"""What is learned of the workload, and how much of what is idle it could use."""
