"""The numbers of resources in the rows of a board."""

from __future__ import annotations

from ullage.core.kernel import board as at
from ullage.model.topology import CARD, CPU, MEMORY


class ZoneResources:
    """Names and their numbers, which are assigned when a name is first used."""

    def __init__(self) -> None:
        self._codes = {CARD: at.CARDS, CPU: at.CPUS, MEMORY: at.MEMORY}
        self._names = {code: resource for resource, code in self._codes.items()}

    def code_of(self, name: str) -> int:
        """Return the number of a resource."""
        code = self._codes.setdefault(name, len(self._codes))  # `OTHERS` on: the first three are there
        self._names[code] = name
        return code

    def known(self, name: str) -> int | None:
        """Return the number of a resource that was used before, or None."""
        return self._codes.get(name)

    def name_of(self, code: int) -> str:
        """Return the name of a resource by its number."""
        return self._names[code]
