"""The topology of nodes as other programs write it: CRDs, ResourceSlices, and the files and API of a kubelet.

A reader returns what it read and a sentence for each entry that it dropped: a malformed entry never discards the rest
of the node. A document that contradicts itself as a whole is an `InvalidRequest`. Everything here is pure.
"""
