"""`ullage completion`: completions for a shell, made by shtab from the parser itself."""

from __future__ import annotations

import argparse

from ullage.model.error import Unavailable

_SHELLS = ("bash", "zsh", "tcsh")


def configure_completion(parser: argparse.ArgumentParser) -> None:
    """`ullage completion`."""
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(act=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab  # noqa: PLC0415  # optional
    except ImportError:
        raise Unavailable("completions need shtab: pip install shtab", code="not-installed") from None
    from ullage.cli.main import build_parser  # noqa: PLC0415  # it imports this module

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
