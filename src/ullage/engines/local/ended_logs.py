"""The logs of ended executors, bounded in number and size."""

from __future__ import annotations

from pathlib import Path

from ullage.wire.output_log import log_bytes, remove_log

MOST_BYTES = 2 << 30
MOST_EXECUTORS = 1000

_SUFFIXES = (".out", ".err")


class EndedLogs:
    """Finds the oldest logs in `directory` when those of ended executors are too many or too large together."""

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES, most_executors: int = MOST_EXECUTORS) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._most_executors = most_executors
        self._bytes: dict[str, int] = {}  # by name, in order of their end

    def open(self) -> list[Path]:
        """Count the logs of earlier runs. Return the surplus logs, as `add`."""
        ended: dict[str, float] = {}
        for entry in self._directory.iterdir():
            if entry.suffix in _SUFFIXES:
                at = entry.lstat().st_mtime
                ended[entry.stem] = max(at, ended.get(entry.stem, at))
        return [path for name in sorted(ended, key=ended.__getitem__) for path in self.add(name)]

    def add(self, name: str) -> list[Path]:
        """Count the logs of an ended executor and remove empty ones. Return the surplus logs.

        The caller removes them: removing a large file takes long.
        """
        total = 0
        for path in self._logs(name):
            size = log_bytes(path)
            total += size
            if not size:
                remove_log(path)
        if total:
            self._bytes[name] = total
        surplus: list[Path] = []
        while len(self._bytes) > self._most_executors or sum(self._bytes.values()) > self._most_bytes:
            oldest = next(iter(self._bytes))
            del self._bytes[oldest]
            surplus += self._logs(oldest)
        return surplus

    def reopen(self, name: str) -> None:
        """Stop counting the logs of this name: an executor that continues them starts."""
        self._bytes.pop(name, None)

    def _logs(self, name: str) -> list[Path]:
        return [self._directory / f"{name}{suffix}" for suffix in _SUFFIXES]
