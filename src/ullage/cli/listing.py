"""Listings: every verb that lists objects has the options of this module, and their one meaning."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ullage.cli.exits import caution
from ullage.cli.output import DATA, FORMATS, Column, cell_text, cells, data_text, field_text
from ullage.cli.table import format_table, terminal_width
from ullage.client.local import reach
from ullage.model.duration import parse_duration
from ullage.model.error import invalid
from ullage.model.nearest import Missing, did_you_mean

_OF_LISTINGS = (*FORMATS, "csv", "name")
"""What `-o` takes in a listing, apart from the names of fields."""

_TREE_FORMATS = ("table", "wide")
_NUMBERS = re.compile(r"([0-9]+)")

Fetch = Callable[[argparse.Namespace], Sequence[Any]]
Values = Callable[[Any], Iterable[str]]


class Form(NamedTuple):
    """How rows are shown: the format, the columns of a table or of CSV, and whether their titles are shown."""

    output: str
    columns: tuple[Column, ...]
    header: bool


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of rows: bodies of the API. `name` is what other verbs call a row, and `-o name` prints.

    A row is selected by `--state` where it has `states_of`, by `--user` and `--me` where it has `users_of`, by
    `--queue` where it has `queues_of`. `known_states` are all states that rows can have. `tree` returns rows in the
    order of a tree, with the text of their first column; `--sort` overrides it.
    """

    kind: str
    columns: tuple[Column, ...]
    body: type[msgspec.Struct]
    name: Callable[[Any], str]
    known_states: tuple[str, ...] = ()
    states_of: Values | None = None
    users_of: Values | None = None
    queues_of: Values | None = None
    tree: Callable[[Sequence[Any]], tuple[list[Any], list[str]]] | None = None

    # --- options ---

    def configure(self, parser: argparse.ArgumentParser, fetch: Fetch) -> None:
        """Add the options, and have the verb list what `fetch` returns for its arguments."""
        self.add_options(parser)
        parser.set_defaults(act=lambda arguments: self.show(arguments, fetch))

    def configure_with_actions(self, parser: argparse.ArgumentParser, fetch: Fetch, example: str) -> Any:
        """Do the same for a verb with actions, of which `list` is the default. Return the actions, to add others."""
        self.configure(parser, fetch)
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        same = actions.add_parser("list", help=f"all {self.kind}s (default)", epilog=f"example: {example}")
        self.configure(same, fetch)
        for action in same._actions:  # noqa: SLF001  # what the verb itself was given counts too
            action.default = argparse.SUPPRESS
        return actions

    def add_options(self, parser: argparse.ArgumentParser, *, watch: bool = True) -> None:
        """Add the options of every listing."""
        add = parser.add_argument
        if self.states_of is not None:
            add("--state", metavar="STATE", help=f"only of these states: {', '.join(self.known_states)}")
        if self.users_of is not None:
            users = parser.add_mutually_exclusive_group()
            users.add_argument("-u", "--user", "--owner", metavar="USER", help="only of these users")
            users.add_argument("--me", action="store_true", help="only mine")
        if self.queues_of is not None:
            add("-q", "--queue", metavar="QUEUE", help="only of these queues")
        add("--sort", metavar="FIELD", help="in the order of these fields; -FIELD reverses")
        if watch:
            add("-w", "--watch", action="store_true", help="show it again and again; in a pipe, what has changed")
            add("--every", default="2s", metavar="TIME", help="time between two looks of --watch (default: 2s)")
        formats = ", ".join(_OF_LISTINGS)
        add("-o", "--output", default="table", metavar="FORMAT", help=f"{formats}, or columns as FIELD,FIELD")
        add("--no-header", action="store_true", help="leave out the titles of columns")

    # --- showing ---

    def show(self, arguments: argparse.Namespace, fetch: Fetch) -> int:
        """List what `fetch` returns, as the options say. Return the exit code.

        Raises:
            InvalidRequest: an option names a field, a format or a state that does not exist.
            NotFound: `--queue` names a queue that does not exist.

        """
        form = self.form(arguments)
        fields, wanted = self._order(arguments.sort), self._wanted(arguments)

        def rows() -> list[Any]:
            return in_order(self._select(fetch(arguments), wanted), fields)

        tree = None if fields else self.tree
        if arguments.watch:
            from ullage.cli.watching import watch  # noqa: PLC0415  # needed only here

            return watch(self, form, rows, parse_duration(arguments.every, "--every"), tree=tree)
        sys.stdout.write(self.text(rows(), form, terminal_width(), tree))
        return 0

    def form(self, arguments: argparse.Namespace) -> Form:
        """Return how to show rows.

        Raises:
            InvalidRequest: `-o` names neither a format nor fields.

        """
        output, given, names = str(arguments.output).partition("=")
        header = not arguments.no_header
        if given and output == "csv":
            return Form("csv", tuple(self.field(name, "--output") for name in names.split(",")), header)
        if output == "csv":
            return Form("csv", self.columns, header)
        if output in _OF_LISTINGS:
            return Form(output, tuple(c for c in self.columns if output == "wide" or not c.wide), header)
        chosen = (self.field(name, "--output", _OF_LISTINGS) for name in arguments.output.split(","))
        return Form("table", tuple(column._replace(spared=0) for column in chosen), header)

    def text(
        self,
        rows: Sequence[Any],
        form: Form,
        width: int | None = None,
        tree: Callable[[Sequence[Any]], tuple[list[Any], list[str]]] | None = None,
    ) -> str:
        """Return rows as text. `width` cuts the columns of a table."""
        if form.output in DATA:
            return data_text(list(rows), form.output)
        if form.output == "name":
            return "".join(f"{self.name(row)}\n" for row in rows)
        titles = [column.title for column in form.columns]
        if form.output == "csv":
            return csv_text([*([titles] if form.header else []), *cells(rows, form.columns)])
        if tree is not None and form.output in _TREE_FORMATS and form.columns[:1] == self.columns[:1]:
            rows, first = tree(rows)
            shown = [[name, *rest] for name, (_, *rest) in zip(first, cells(rows, form.columns), strict=True)]
        else:
            shown = cells(rows, form.columns)
        spared = [column.spared for column in form.columns]
        return format_table(titles, shown, None if form.output == "wide" else width, header=form.header, spared=spared)

    # --- fields ---

    def field(self, name: str, option: str, others: Sequence[str] = ()) -> Column:
        """Return the column of that name: of a title, such as `held-by`, or of a field of the body.

        Raises:
            InvalidRequest: there is none; the message lists the fields.

        """
        known = self.fields()
        if (wanted := _spelt(name)) in known:
            return known[wanted]
        from ullage.cli.slurm import field_of  # noqa: PLC0415  # needed only here

        if (found := field_of(wanted.partition("%")[0], known)) in known:  # as JobID%20
            return known[found]
        meant = did_you_mean(wanted, (*others, *known))
        if "%" in name:
            meant = "write columns as FIELD,FIELD; "
        raise invalid(option, name, f"{meant}fields of a {self.kind} are {', '.join(known)}")

    def fields(self) -> dict[str, Column]:
        """Return the columns by name: those of the tables, then the fields of the body."""
        known = {_spelt(column.title): column for column in self.columns}
        for name in self.body.__struct_fields__:
            known.setdefault(_spelt(name), _column_of(name))
        return known

    def _order(self, text: str | None) -> list[tuple[Column, bool]]:
        """Return the columns of `--sort`, each with whether it is reversed."""
        names = [] if text is None else text.split(",")
        return [(self.field(name.removeprefix("-"), "--sort"), name.startswith("-")) for name in names]

    # --- selection ---

    def _wanted(self, arguments: argparse.Namespace) -> dict[str, set[str]]:
        """Return the wanted values of each filter.

        Raises:
            InvalidRequest: a state does not exist.

        """
        given = {name: getattr(arguments, name, None) for name in ("state", "user", "queue")}
        wanted = {name: set(text.split(",")) for name, text in given.items() if text is not None}
        if getattr(arguments, "me", False):
            from ullage.client.own_name import own_name  # noqa: PLC0415  # it loads what a session is made of

            wanted["user"] = {own_name(reach(start=False))}
        if "all" in wanted.get("state", ()):
            del wanted["state"]
        if "state" in wanted:
            wanted["state"] = {self._state(state) for state in wanted["state"]}
        return wanted

    def _state(self, text: str) -> str:
        from ullage.cli.slurm import state_of  # noqa: PLC0415  # needed only here

        state = state_of(text.lower().replace("_", "-"), self.known_states)
        if state not in self.known_states:
            meant = did_you_mean(state, self.known_states)
            raise invalid("--state", text, f"{meant}states of a {self.kind} are {', '.join(self.known_states)}")
        return state

    def _select(self, rows: Sequence[Any], wanted: dict[str, set[str]]) -> list[Any]:
        filters = {"state": self.states_of, "user": self.users_of, "queue": self.queues_of}
        left = list(rows)
        for name, values in wanted.items():
            values_of = filters[name]
            assert values_of is not None  # without it there is no such option
            chosen = [row for row in left if not values.isdisjoint(values_of(row))]
            if not chosen and name == "queue":
                _require_queues(values)
            if not chosen and name == "user":
                caution(_unknown_users(values, {user for row in rows for user in values_of(row)}))
            left = chosen
        return left


def in_order(rows: list[Any], fields: Sequence[tuple[Column, bool]]) -> list[Any]:
    """Return rows sorted by columns, the first one first; a row without a value comes last."""
    for column, is_reversed in reversed(fields):
        key = column.key or column.cell
        keys = {id(row): sort_key(key(row)) for row in rows}
        there = [row for row in rows if keys[id(row)]]
        there.sort(key=lambda row: keys[id(row)], reverse=is_reversed)
        rows = there + [row for row in rows if not keys[id(row)]]
    return rows


def sort_key(value: object) -> tuple[Any, ...]:
    """Return what orders values: numbers by size, texts with numbers as people do (n2 before n10), () for nothing."""
    if value is None or value in ("", "-"):
        return ()
    if isinstance(value, int | float):
        return (0, value)
    pieces = _NUMBERS.split(cell_text(value))
    return (1, *((1, int(piece), "") if n % 2 else (0, 0, piece) for n, piece in enumerate(pieces)))


def csv_text(lines: Iterable[Sequence[str]]) -> str:
    """Return lines of cells as comma-separated values; a cell with nothing is empty."""
    import csv  # noqa: PLC0415  # needed only here
    import io  # noqa: PLC0415  # as above

    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["" if cell == "-" else cell for cell in line] for line in lines])
    return out.getvalue()


def _spelt(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def _column_of(name: str) -> Column:
    """Return the column of a field of the body."""
    return Column(
        _spelt(name).upper(), lambda row: field_text(name, getattr(row, name)), key=lambda row: _plain(row, name)
    )


def _plain(row: Any, name: str) -> object:
    value = getattr(row, name)
    return value if isinstance(value, int | float | str | None) else field_text(name, value)


def _require_queues(names: set[str]) -> None:
    """Refuse queues that do not exist.

    Raises:
        NotFound: one does not exist; the message lists the queues that do.

    """
    known = [queue.name for queue in reach(start=False).queues()]
    for name in sorted(names.difference(known)):
        raise Missing("queue", name, known)


def _unknown_users(names: set[str], known: set[str]) -> list[str]:
    """Return a warning for each user of whom nothing is listed, and whose name is like that of one who is."""
    found = {name: did_you_mean(name, sorted(known)) for name in sorted(names - known)}
    return [f"nothing of user {name!r} is listed: {meant.strip()}" for name, meant in found.items() if meant]
