"""One kind of partition of a card: its amounts, and its places."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT64, PPM, check_range

MAX_COUNT = 1024
"""The most partitions, slots or groups in a table."""

_TO_DASH = str.maketrans("._ ", "---")


@lru_cache(maxsize=4096)
def name_key(name: str) -> str:
    """Return the key for comparing names of models, templates and vendors.

    Case does not count, `.` `_` and blank count as `-`, and `mig-` is left out.
    """
    return name.strip().lower().translate(_TO_DASH).removeprefix("mig-")


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of partition: its amounts, how many a card may hold, and where it may lie.

    `compute_ppm` is in millionths of the card. With placement slots it takes `size` of them from one of `starts`,
    tried in this order. With isolation groups, up to `per_group` of one kind lie together. A partition is charged
    `charged_ppm` of the compute, where that is less than it counts for (0: it is not). Errors name fields as a table of
    profiles does.

    Raises:
        InvalidRequest: an amount is out of range, or as many as the card may hold are more than the card.

    """

    name: str
    memory_bytes: int
    compute_ppm: int
    max_partitions: int
    id: str = ""
    starts: tuple[int, ...] = ()
    size: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    per_group: int = 1
    charged_ppm: int = 0

    def __post_init__(self) -> None:
        if not name_key(self.name):
            raise invalid("name", self.name, "give the template a name")
        for field_name, value, least, most in (
            ("memory_gigabytes", self.memory_bytes, 1, MAX_INT64),
            ("compute_percent", self.compute_ppm, 1, PPM),
            ("charged_ppm", self.charged_ppm, 0, self.compute_ppm),
            ("max_partition", self.max_partitions, 1, MAX_COUNT),
            ("placement_offset", self.size, 0, MAX_COUNT),
            ("max_partitions_per_isolation_group", self.per_group, 1, MAX_COUNT),
            *(("placement_limit", start, 0, MAX_COUNT) for start in self.starts),
            *((f"extended_resources.{name}", amount, 1, MAX_INT64) for name, amount in self.extended),
        ):
            check_range(field_name, value, least, most)
        if len(set(self.starts)) != len(self.starts):
            raise invalid("placement_limit", self.starts, "name each start slot once")
        if self.takes_ppm * self.max_partitions > PPM:
            fix = f"{self.max_partitions} such partitions (max_partition) exceed the card; round it down"
            raise invalid("compute_percent", self.compute_ppm / 10_000, fix)

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.size))

    @property
    def takes_ppm(self) -> int:
        """Millionths of the compute of its card that a partition is charged."""
        return self.charged_ppm or self.compute_ppm

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(name_key(name) for name in (self.name, self.id) if name)
