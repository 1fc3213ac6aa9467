"""The only wiring: settings in, a running server out."""

from ullage.bootstrap.server import serve

__all__ = ["serve"]
