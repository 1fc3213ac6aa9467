"""`python -m ullage.worker function|command`: a built-in worker. Started by an engine, not by people."""

from __future__ import annotations

import sys

from ullage.worker.loop import print_as_it_comes, serve
from ullage.worker.service import Service


def main(arguments: list[str]) -> int:
    """Serve the built-in service named by the one argument; 2 if there is no such service."""
    service = _service(arguments)
    if service is None:
        print("usage: python -m ullage.worker function|command", file=sys.stderr)  # noqa: T201  # for whoever starts it by hand
        return 2
    print_as_it_comes()
    serve(service)
    return 0


def _service(arguments: list[str]) -> Service | None:
    # Each service is imported only where it runs: it is part of the time an executor takes to start.
    if arguments == ["function"]:
        from ullage.worker.function import FunctionService  # noqa: PLC0415  # see above

        return FunctionService()
    if arguments == ["command"]:
        from ullage.worker.command import CommandService  # noqa: PLC0415  # see above

        return CommandService()
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
