"""What an inventory must be before any books are kept of it: names are unique, amounts are whole and not negative."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.quantity import MAX_INT32, MAX_INT64, check_amount

MAX_CARD_AMOUNT = 2**53
"""The most bytes and GFLOPS of one card: the books multiply them by 1000 in 64 bits."""


def check_inventory(nodes: Iterable[Node]) -> None:
    """Refuse machines that books cannot be kept of.

    Raises:
        InvalidRequest: two nodes have one name (`duplicate-node`), a card is there twice (`duplicate-card`), or an
            amount is no whole number within its range (`amount-out-of-range`). The message names node and card.

    """
    names: set[str] = set()
    home: dict[str, str] = {}
    for node in nodes:
        if node.name in names:
            message = f"two nodes have the name {node.name!r}; names of nodes are unique"
            raise InvalidRequest(message, code="duplicate-node", field="nodes")
        names.add(node.name)
        _check_amounts(node)
        for gpu in node.gpus:
            if gpu.uuid in home:
                where = f"on {node.name}" if home[gpu.uuid] == node.name else f"on {home[gpu.uuid]} and on {node.name}"
                message = f"card {gpu.uuid!r} is there twice, {where}; the uuid of a card is unique"
                raise InvalidRequest(message, code="duplicate-card", field="gpus")
            home[gpu.uuid] = node.name


def _check_amounts(node: Node) -> None:
    for name, amount in (("cpu_milli", node.cpu_milli), ("memory_bytes", node.memory_bytes)):
        check_amount(amount, f"{node.name}: {name}", MAX_INT64)
    check_amount(node.max_executors, f"{node.name}: max_executors", MAX_INT32)
    for gpu in node.gpus:
        check_card(gpu, node.name)


def check_card(gpu: Gpu, node: str) -> None:
    """Refuse a card with an amount that is no whole number within its range.

    Raises:
        InvalidRequest: `amount-out-of-range`; the message names node, card and amount.

    """
    for name, found, most in (
        ("compute_gflops", gpu.compute_gflops, MAX_CARD_AMOUNT),
        ("vram_bytes", gpu.vram_bytes, MAX_CARD_AMOUNT),
        ("max_users", gpu.max_users, MAX_INT32),
    ):
        if found is not None:
            check_amount(found, f"{node}: {gpu.uuid}: {name}", most)
