"""The address of a server in the settings: `HOST:PORT`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ullage.model.error import invalid

_MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server; "" is every address of the machine."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, or every address
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str, field: str) -> Address:
        """Return the address in `HOST:PORT`, `[HOST]:PORT` or `:PORT`.

        Raises:
            InvalidRequest: it is malformed.

        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        plain = port.isascii() and port.isdigit() and len(port) <= len(str(_MOST_PORT)) and int(port) <= _MOST_PORT
        if not colon or not plain or not host.isprintable() or (":" in host and not bracketed):
            raise invalid(field, text, "write HOST:PORT, such as 127.0.0.1:8080, or :8080 for all addresses")
        return cls(host.strip("[]"), int(port))
