"""The reference of the commands, from their parsers."""

from __future__ import annotations

import argparse

from docs.markdown import table
from ullage.cli import exits, kubectl
from ullage.cli.main import build_parser
from ullage.cli.verbs import GROUPS, VERBS


def verbs() -> str:
    """Return every verb with its summary, by group."""
    tables = (
        f"{_sentence(group)[:-1]}:\n\n"
        + table(("verb", "does"), ((f"[`{name}`](#ullage-{name})", verb.help) for name, verb in verbs.items()))
        for group, verbs in GROUPS.items()
    )
    return "\n\n".join(tables)


def exit_codes() -> str:
    """Return the table of the module that defines the exit codes."""
    return "\n".join(line for line in (exits.__doc__ or "").splitlines() if line.startswith("|"))


def options() -> str:
    """Return every verb with its arguments and an example."""
    sections = []
    for name, parser in subparsers(build_parser()).items():
        text = [f"### ullage {name}", f"{_sentence(VERBS[name].help)}", f"    {VERBS[name].example}"]
        text += [table for table in (_arguments(parser),) if table]
        for action, own in subparsers(parser).items():
            text += [f"`ullage {name} {action}`:", _arguments(own) or "No options."]
        sections.append("\n\n".join(text))
    return "\n\n".join(sections)


def plugin() -> str:
    """Return every verb of the plugin of kubectl with its arguments and an example."""
    sections = []
    for name, parser in subparsers(kubectl.build_parser()).items():
        example = str(parser.epilog).removeprefix("example: ")
        text = [f"### kubectl ullage {name}", _sentence(str(parser.description)), f"    {example}", _arguments(parser)]
        sections.append("\n\n".join(text))
    return "\n\n".join(sections)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public way
            found.update(action.choices)
    return found


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public way
            continue
        value = action.metavar or (",".join(action.choices) if action.choices else action.dest.upper())
        takes = f" {value}" if action.nargs != 0 else ""
        shown = ", ".join(f"`{option}{takes}`" for option in action.option_strings) or f"`{value}`"
        rows.append((shown, (action.help or "-") % {"default": action.default, "prog": parser.prog}))
    return table(("argument", "meaning"), rows) if rows else ""
