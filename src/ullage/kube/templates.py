"""Machines that only a question describes: an autoscaler asks about them before it adds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ullage.core.books.inventory_check import check_inventory
from ullage.kube.machines import Machines
from ullage.service.cluster import Cluster
from ullage.wire.extender import ExtenderArgs


@contextmanager
def with_templates(args: ExtenderArgs, machines: Machines, cluster: Cluster) -> Iterator[None]:
    """Have questions in the block answered as if the machines of the request that the cluster lacks were there.

    Raises:
        InvalidRequest: one of them is no Node, or cannot be: see `check_inventory`.

    """
    unknown = machines.templates(args.described())
    if not unknown:
        yield
        return
    check_inventory((*cluster.allocator.fleet.nodes, *unknown))
    with cluster.allocator.supposing(unknown):
        yield
