"""What others write of the topology of nodes: CRDs, ResourceSlices, and what a kubelet keeps on its node.

A reader returns what it read and a sentence for each entry that it dropped: a malformed entry never costs the
rest of the node. A document that contradicts itself as a whole is an `InvalidRequest`. Everything here is pure.
"""
