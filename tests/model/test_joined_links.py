"""Links from several sources as one."""

from __future__ import annotations

from ullage.model.links import joined_links, links_by_group
from ullage.model.topology import Link, Path


def test_a_single_source_is_taken_as_it_is():
    own = (Link("b", "a", Path.PIX), Link("a", "nic", Path.PHB))
    assert joined_links([own]) == joined_links([(), own, ()]) == own
    assert joined_links([]) == joined_links([(), ()]) == ()


def test_paths_are_those_of_the_first_source_that_knows_each_pair():
    first = (Link("a", "b", Path.SYS), Link("c", "a", Path.UNKNOWN))
    second = (Link("b", "a", Path.PIX), Link("a", "c", Path.PHB), Link("b", "c", Path.PXB))
    expected = (Link("a", "b", Path.SYS), Link("a", "c", Path.PHB), Link("b", "c", Path.PXB))
    assert joined_links([first, second]) == expected


def test_nvlinks_are_those_of_the_first_source_that_has_any():
    without_nvml = (Link("a", "b", Path.PIX), Link("b", "c", Path.PHB))
    first = (Link("a", "b", Path.UNKNOWN, 2), Link("a", "c", Path.SYS, 0))
    second = (Link("a", "b", Path.SYS, 12), Link("a", "c", Path.SYS, 12), Link("b", "c", Path.SYS, 12))
    expected = (Link("a", "b", Path.PIX, 2), Link("a", "c", Path.SYS), Link("b", "c", Path.PHB))
    assert joined_links([without_nvml, first, second]) == expected


def test_of_the_two_directions_of_a_pair_the_weaker_counts():
    links = (Link("a", "b", Path.PIX, 4), Link("b", "a", Path.NODE, 6), Link("a", "c", Path.PIX), Link("c", "a"))
    assert joined_links([links, (Link("x", "y", Path.SYS),)]) == (
        Link("a", "b", Path.NODE, 4),
        Link("x", "y", Path.SYS),
    )


def test_cards_of_a_group_are_linked_with_each_other():
    assert links_by_group([("b", "a", "c"), ("d",)], Path.PHB, 1) == (
        Link("a", "b", Path.PHB, 1),
        Link("a", "c", Path.PHB, 1),
        Link("b", "c", Path.PHB, 1),
    )
