"""The exporter: on each node one process that tells the cluster what its machine is like, and who holds what of it.

It reads the kernel, the driver and the kubelet, and writes one Numatopology, named after the node. It decides nothing.
"""
