"""Placements of all kinds, for tests of their annotations."""

from hypothesis import strategies as st

from ullage.model.zone_placement import Rank, ZonePlacement

ZONES = st.integers(0, 63)
PLACEMENTS = st.builds(
    ZonePlacement,
    zones=st.sets(ZONES).map(lambda ids: tuple(sorted(ids))),
    cpus=st.sets(st.integers(0, 4095), max_size=20).map(lambda ids: tuple(sorted(ids))),
    devices=st.dictionaries(st.text(min_size=1), st.lists(st.text(), max_size=3).map(tuple)).map(
        lambda found: tuple(sorted(found.items()))
    ),
    memory=st.lists(st.tuples(ZONES, st.integers(0, 2**56)), max_size=3).map(tuple),
    rank=st.sampled_from(Rank),
    rule=st.sampled_from(["", "kubelet", "current-best"]),
    amounts=st.lists(st.tuples(ZONES, st.text(min_size=1), st.integers(0, 2**56)), max_size=3).map(tuple),
)
