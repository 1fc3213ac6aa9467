"""Recovery of the intact parts of a damaged database, for the command line."""

from __future__ import annotations

from ullage.storage.recover import Recovery, recover

__all__ = ["Recovery", "recover"]
