"""What others write of the topology of nodes: CRDs, ResourceSlices, and what a kubelet keeps on its node.

Readers answer with what they read and with a sentence for each entry that they dropped: a malformed entry
never empties a node. A document that contradicts itself as a whole is an `InvalidRequest`. Everything here is pure.
"""
