"""`python -m ullage.worker function|command`: a built-in worker, which an engine starts."""

from __future__ import annotations

import sys

from ullage.worker.loop import configure_streams, serve
from ullage.worker.service import Service


def main(arguments: list[str]) -> int:
    """Serve the built-in service that the argument names. Return 2 if no such service exists."""
    service = _service(arguments)
    if service is None:
        print("usage: python -m ullage.worker function|command", file=sys.stderr)  # noqa: T201  # it was started by hand
        return 2
    configure_streams()
    serve(service, record=arguments == ["function"])  # the programs of the other one have logs of their own
    return 0


def _service(arguments: list[str]) -> Service | None:
    # Each service is imported only where it runs: an import delays the start of an executor.
    if arguments == ["function"]:
        from ullage.worker.function import FunctionService  # noqa: PLC0415  # see above

        return FunctionService()
    if arguments == ["command"]:
        from ullage.worker.command import CommandService  # noqa: PLC0415  # see above

        return CommandService()
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
