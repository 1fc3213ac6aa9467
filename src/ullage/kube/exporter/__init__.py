"""The exporter: a process on each node that reports the machine and who holds what of it to the cluster.

It reads the kernel, the driver and the kubelet, and writes a Numatopology, a NodeResourceTopology or both, named after
the node. It decides nothing.
"""
