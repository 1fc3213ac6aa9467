"""Job files: options of `ullage run` and `submit` in a TOML file, or in the `#ULLAGE` lines of a script."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ullage.cli.exits import caution
from ullage.cli.standard_input import has_input, read_input
from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import did_you_mean

MARK = "#ULLAGE"
_LIKE_MARK = re.compile(r"\s*#\s*ullage\s+-", re.IGNORECASE)
_PROGRAM = "program"
_MOST_BYTES = 1 << 20
"""The most bytes of a script that are searched for options."""


SCRIPT_FROM_INPUT = "-"
"""The word for a script that is the standard input."""


class JobFile(NamedTuple):
    """A program, and options as words, each with the place that states it. A `script` is its standard input."""

    argv: list[str]
    options: list[tuple[str, list[str]]]
    script: bytes | None = None


class OptionParser(argparse.ArgumentParser):
    """A parser of the options in a file: it raises errors, and knows no help and no abbreviations."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise an error of the words.

        Raises:
            InvalidRequest: always.

        """
        raise InvalidRequest(message)

    @property
    def names(self) -> dict[str, argparse.Action]:
        """The options by their long names, without the dashes."""
        found = ((name, action) for action in self._actions for name in action.option_strings)
        return {name[2:]: action for name, action in found if name.startswith("--")}


def with_job_file(arguments: argparse.Namespace, parser: OptionParser) -> argparse.Namespace:
    """Return the arguments with those of the job file that they begin with, if any; those of the command line win.

    Options that may be repeated add up. A program after `--` is no job file. Without a program, or for `-`, the script
    is the standard input; it is in `script` of what is returned.

    Raises:
        InvalidRequest: the file cannot be read, or an option in it is unknown or malformed; its line is named.

    """
    word, *rest = arguments.argv or [SCRIPT_FROM_INPUT if has_input() and not arguments.stdin else ""]
    if word in ("", "--"):
        return argparse.Namespace(**vars(arguments), script=None)
    if word == SCRIPT_FROM_INPUT:
        found: JobFile | None = _script_of_input()
    else:
        found = _read_toml(Path(word), parser) if word.endswith(".toml") else _read_script(word)
    if found is None:
        return argparse.Namespace(**vars(arguments), script=None)
    stated, wrong = argparse.Namespace(), []
    for where, words in found.options:
        stated, unread = _parse(parser, words, stated, where)
        wrong += [] if unread is None else [unread]
    if wrong:
        raise InvalidRequest("\n  ".join(wrong), field="file")
    merged = _merged(vars(stated), vars(arguments), word)
    return argparse.Namespace(**merged, argv=[*found.argv, *rest], script=found.script)


def _merged(file: dict[str, Any], line: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of the file, overridden by those of the command line."""
    merged = {key: value for key, value in line.items() if key != "argv"}
    amounts = [key for key in ("gpus", "cpus", "mem") if line.get(key) is not None]
    if amounts and file.get("resreq") is not None:
        fix = f"{name} states resreq, which has it too; -r replaces that"
        raise invalid(f"--{next(iter(amounts))}", line[next(iter(amounts))], fix)
    for key, value in file.items():
        replaced = key in ("gpus", "cpus", "mem") and line.get("resreq") is not None
        if isinstance(value, list):
            merged[key] = value + line[key]
        elif not line.get(key) and not replaced:
            merged[key] = value
    return merged


def _parse(
    parser: OptionParser, words: list[str], into: argparse.Namespace, where: str
) -> tuple[argparse.Namespace, str | None]:
    """Return the options with those of one line added, and what is wrong with the line if it has others.

    Raises:
        InvalidRequest: an option has no value, or a wrong one.

    """
    try:
        found, unread = parser.parse_known_args(words, into)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error.message}", field="file") from None
    return found, _mistake(parser, words, unread, where) if unread else None


def _mistake(parser: OptionParser, words: list[str], unread: list[str], where: str) -> str:
    """Return what is wrong with the words of a line that are no options, and what is meant."""
    from ullage.cli.slurm_hints import hint, meant_by  # noqa: PLC0415  # only mistakes need it

    word = next(iter(unread))
    known = [f"--{name}" for name in parser.names]
    meant = hint(meant_by("run", words, unread.__contains__)) or did_you_mean(word.partition("=")[0], known)
    fix = f"{meant}`ullage run --help` lists the options" if word.startswith("-") else "only options are possible here"
    return f"{where}: {word} is not known: {fix}"


# --- scripts ---


def _read_script(word: str) -> JobFile | None:
    """Return a script with options; None for any other program."""
    path = Path(word)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES)
    if not text.startswith(b"#"):
        return None
    lines = text.decode(errors="replace").splitlines()
    options = list(_directives(word, lines))
    if not options and "/" not in word and shutil.which(word) is not None:
        return None
    _warn_of_slurm(word, lines, has_options=bool(options))
    if not options and "/" in word:
        return None
    return JobFile(_command_of(path, lines), options)


def _script_of_input() -> JobFile:
    """Return the script on the standard input, which its interpreter reads from there.

    Raises:
        InvalidRequest: it has no first line such as #!/bin/bash, or is too large.

    """
    given = read_input(send=True)
    assert given is not None  # it is sent
    given.require_all()
    lines = given.data.decode(errors="replace").splitlines()
    name, first = "the standard input", next(iter(lines), "")
    if not first.startswith("#!"):
        raise invalid(
            "program", SCRIPT_FROM_INPUT, "a script on the standard input begins with a line such as #!/bin/sh"
        )
    options = list(_directives(name, lines))
    _warn_of_slurm(name, lines, has_options=bool(options))
    return JobFile([*first[2:].strip().split(maxsplit=1), "/dev/stdin"], options, given.data)


def _warn_of_slurm(name: str, lines: list[str], *, has_options: bool) -> None:
    """Warn of `#SBATCH` lines if there are no others, with what they are here, and of variables of Slurm."""
    from ullage.cli.slurm_hints import translated, unset_variables  # noqa: PLC0415  # only scripts need it

    if not has_options and (meant := translated(lines)):
        caution([f"{name}: its #SBATCH lines have no effect; here they are\n  " + "\n  ".join(meant)])
    caution([f"{name}: {text}" for text in unset_variables(lines)])


def _directives(name: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the options of the lines before the first command; warn of later ones."""
    in_head = True
    for number, line in enumerate(lines, 1):
        where = f"{name}: line {number}"
        if re.match(rf"{MARK}\b", line) is None:
            if in_head and _LIKE_MARK.match(line):
                caution(
                    [f"{where} is not read: begin it with {MARK}, in these letters and without a blank before them"]
                )
            in_head &= not line.strip() or line.startswith("#")
        elif not in_head:
            caution([f"{where}: {MARK} has no effect after the first command; move it up"])
        else:
            yield where, _words(line.removeprefix(MARK), where)


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InvalidRequest(f"{where}: {error}", field="file") from None


def _command_of(path: Path, lines: list[str]) -> list[str]:
    """Return the words that run a script, also one that is not executable."""
    absolute = os.path.abspath(path)  # noqa: PTH100  # as the caller names it, also through a link
    if os.access(path, os.X_OK):
        return [absolute]
    first = next(iter(lines))
    if not first.startswith("#!"):
        raise invalid("program", str(path), "make it executable, or begin it with a line such as #!/bin/bash")
    return [*first[2:].strip().split(maxsplit=1), absolute]


# --- TOML ---


def _read_toml(path: Path, parser: OptionParser) -> JobFile:
    import tomllib  # noqa: PLC0415 - only job files need it

    try:
        text = path.read_text()
        content = tomllib.loads(text)
    except OSError as error:
        raise invalid("program", str(path), f"the job file cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: it is not valid TOML: {error}", field="file") from None
    program = content.pop(_PROGRAM, None)
    argv = shlex.split(program) if isinstance(program, str) else program
    if not argv or not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        where = _line_of(text, _PROGRAM) if program is not None else ""
        raise InvalidRequest(f'{path}: {where}write {_PROGRAM} = ["python", "train.py"]', field=_PROGRAM)
    names, options = parser.names, []
    for key, value in content.items():
        where = f"{path}: {_line_of(text, key)}"
        action = names.get(key.replace("_", "-"))
        if action is None:
            hint = did_you_mean(key.replace("_", "-"), [*names, _PROGRAM])
            raise InvalidRequest(
                f"{where}{key} is not known: {hint}keys are {_PROGRAM} and the long options", field=key
            )
        options.append((where.removesuffix(": "), _words_of(action, key, value, where)))
    return JobFile(argv, options)


def _line_of(text: str, key: str) -> str:
    """Return `line N: ` of a key or section of a TOML file; nothing if the key is written in another way."""
    form = re.compile(rf"\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    found = next((number for number, line in enumerate(text.splitlines(), 1) if form.match(line)), None)
    return "" if found is None else f"line {found}: "


def _words_of(action: argparse.Action, key: str, value: object, where: str) -> list[str]:
    """Return one key of a TOML file as words of a command line."""
    option = next(name for name in action.option_strings if name.startswith("--"))
    if isinstance(action, argparse._StoreTrueAction):  # noqa: SLF001  # argparse has no public name for it
        if not isinstance(value, bool):
            raise InvalidRequest(f"{where}{key}: write true or false", field=key)
        return [option] if value else []
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        values = [f"{name}={content}" for name, content in value.items()]
    repeated = isinstance(action, argparse._AppendAction)  # noqa: SLF001  # as above
    texts = [str(each) for each in values if isinstance(each, (str, int, float)) and not isinstance(each, bool)]
    if len(texts) < len(values) or (not repeated and isinstance(value, (list, dict))):
        raise InvalidRequest(f"{where}{key}: write a text{' or a list of texts' if repeated else ''}", field=key)
    return [f"{option}={text}" for text in texts]
