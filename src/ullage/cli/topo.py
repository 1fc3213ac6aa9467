"""`ullage topo`: a drawing of the topology of a machine."""

from __future__ import annotations

import argparse
import os
import sys

from ullage.cli.machine import draw_machine
from ullage.cli.output import DATA, add_output, print_data
from ullage.cli.table import terminal_width
from ullage.client.local import reach
from ullage.model.error import InvalidRequest, Unavailable
from ullage.wire.node_topology import TopologyBody


def configure_topo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", metavar="NODE", help="the machine to draw (default: each)")
    parser.add_argument(
        "--local", action="store_true", help="this machine as discovered now; needs no server, shows no holders"
    )
    add_output(parser)
    parser.set_defaults(act=_topo)


def _topo(arguments: argparse.Namespace) -> int:
    if arguments.local and arguments.node is not None:
        raise InvalidRequest("NODE and --local: --local draws this machine; leave NODE out", field="node")
    drawn = [_discover()] if arguments.local else _fetch(arguments.node)
    if arguments.output in DATA:
        print_data(drawn[0] if arguments.local or arguments.node is not None else drawn, arguments.output)
        return 0
    width = None if arguments.output == "wide" else terminal_width()
    sys.stdout.write("\n".join(draw_machine(body, width) for body in drawn))
    return 0


def _fetch(node: str | None) -> list[TopologyBody]:
    try:
        api = reach(start=False)
    except Unavailable as error:
        raise Unavailable(f"{error.message}; `ullage topo --local` draws this machine without one") from None
    return [api.topology(name) for name in ([body.name for body in api.nodes()] if node is None else [node])]


def _discover() -> TopologyBody:
    """Return this machine as a server without settings discovers it."""
    from ullage.inventory.machine import MachineSettings, discover  # noqa: PLC0415 - needed only here
    from ullage.inventory.nvml import NvmlCards  # noqa: PLC0415 - as above
    from ullage.wire.node_topology import placed_card, topology_body  # noqa: PLC0415 - as above

    node = discover(MachineSettings(), os.environ, NvmlCards()).node
    return topology_body(node, map(placed_card, node.gpus))
