"""`ullage version`."""

from __future__ import annotations

import argparse

from ullage import __version__


def configure_version(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(act=_version)


def _version(_arguments: argparse.Namespace) -> int:
    print(f"ullage {__version__}")
    return 0
