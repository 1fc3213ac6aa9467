"""Certificates of a server from files, which are reloaded when they change, without cutting connections."""

from __future__ import annotations

import ssl
from pathlib import Path

from ullage.model.error import InvalidRequest, invalid

Stamp = tuple[tuple[int, int, int], ...]


class TlsFiles:
    """The files of one server. With `client_ca` only clients with a certificate of that CA are served.

    A client CA that is added counts from the next `renew` on; one that is removed counts until the next start.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Read them.

        Raises:
            InvalidRequest: a file cannot be read, or the two do not belong together.

        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._seen = self._stamp()
        self.context = self._fresh()

    def renew(self) -> bool:
        """Load the current files. Return whether they had changed.

        Raises:
            InvalidRequest: they cannot be used, such as while they are being written; the earlier files stay in use.

        """
        now = self._stamp()
        if now == self._seen:
            return False
        self._fresh()  # raises if the files do not match, before the context in use changes
        self._load(self.context)
        self._seen = now
        return True

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._load(context)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
        except OSError as error:  # an ssl.SSLError is one
            raise invalid("tls", str(self._cert), f"certificate, key and client CA cannot be used: {error}") from None

    def _stamp(self) -> Stamp:
        """Return inode, time and size of each file."""
        found = []
        for path in filter(None, (self._cert, self._key, self._client_ca)):
            try:
                state = path.stat()
            except OSError as error:
                raise InvalidRequest(f"tls: {path} cannot be read: {error.strerror}", field="tls") from None
            found.append((state.st_ino, state.st_mtime_ns, state.st_size))
        return tuple(found)
