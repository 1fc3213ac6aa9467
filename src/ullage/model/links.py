"""The links between the cards of a machine, from several sources that each know a part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ullage.model.topology import Link, Path

Pair = tuple[str, str]


def joined_links(sources: Sequence[Sequence[Link]]) -> tuple[Link, ...]:
    """Return the links of these sources as one: earlier sources come first.

    The path of a pair is that of the first source that knows it. NVLinks are those of the first source that reports any
    for the machine, because a source without access to NVML reports none.
    """
    known = [source for source in sources if source]
    if len(known) == 1:
        return tuple(known[0])
    paths: dict[Pair, Path] = {}
    for source in known:
        for pair, link in _by_pair(source).items():
            if link.path is not Path.UNKNOWN:
                paths.setdefault(pair, link.path)
    counted = next((source for source in known if any(link.nvlinks for link in source)), ())
    nvlinks = {pair: link.nvlinks for pair, link in _by_pair(counted).items()}
    pairs = sorted({*paths, *(pair for pair, count in nvlinks.items() if count)})
    return tuple(Link(*pair, paths.get(pair, Path.UNKNOWN), nvlinks.get(pair, 0)) for pair in pairs)


def links_by_group(groups: Iterable[Sequence[str]], path: Path, nvlinks: int = 0) -> tuple[Link, ...]:
    """Return a link for each pair of cards of one group."""
    return tuple(
        Link(a, b, path, nvlinks)
        for group in groups
        for at, a in enumerate(sorted(group))
        for b in sorted(group)[at + 1 :]
    )


def _by_pair(links: Iterable[Link]) -> dict[Pair, Link]:
    """Return links by their pair, the lower uuid first; of two links of a pair the weaker one."""
    found: dict[Pair, Link] = {}
    for link in links:
        pair = (min(link.a, link.b), max(link.a, link.b))
        last = found.get(pair)
        if last is None:
            found[pair] = link
        else:
            path = _ORDER[min(_ORDER.index(last.path), _ORDER.index(link.path))]
            found[pair] = Link(*pair, path, min(last.nvlinks, link.nvlinks))
    return found


_ORDER = (Path.UNKNOWN, Path.SYS, Path.NODE, Path.PHB, Path.PXB, Path.PIX, Path.BOARD)
"""Paths, the longest first; one that is not known counts as longer."""
