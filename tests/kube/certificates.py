"""Certificates of a test: its own authority, and files that hold what it issues."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """A CA of the test's own, and files that hold what it issues."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.issue()

    def issue(self) -> None:
        found = self.ca.issue_cert("127.0.0.1")
        found.private_key_pem.write_to_path(self._folder / "tls.key")
        (self._folder / "tls.pem").write_bytes(b"".join(blob.bytes() for blob in found.cert_chain_pems))

    def settings(self, prefix: str = "") -> str:
        return f'{prefix}cert_file = "{self._folder}/tls.pem"\n{prefix}key_file = "{self._folder}/tls.key"\n'

    def trusting(self, *, known: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if known:
            self.ca.issue_cert("kube-scheduler").configure_cert(context)
        return context
