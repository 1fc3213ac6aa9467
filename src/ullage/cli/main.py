"""`ullage`: load the module of a verb, run it, and turn errors into exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from ullage import __version__
from ullage.cli.exits import (
    BROKEN_PIPE,
    FAILED,
    INTERNAL,
    INTERRUPTED,
    OUTPUT_LOST,
    USAGE,
    Exit,
    caution,
    complain,
    report,
)
from ullage.cli.loading import import_msgspec, loading
from ullage.cli.verbs import VERBS, VerbsInGroups
from ullage.client.silence import Silence
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.nearest import did_you_mean, one_of
from ullage.model.variables import unknown_variables

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_EPILOG = "`ullage VERB --help` shows the options of a verb and an example. Exit codes: 0 done, 1 no (`plan`), \
2 wrong request, 69 no server, 70 a fault in Ullage, 74 the output cannot be written, 75 try again later, \
78 can never be placed; `run` and `exec` pass the program's own."


_ALONE = "version"
"""The module of a verb that needs neither a server nor a file."""

_REVERSIBLE = "--sort"
"""The option whose value may begin with a minus."""

_OPTIONS = ("-h", "--help", "--version")
"""Options that need no verb."""


_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR)
"""Errors of a file that this user may not use, or that is no file."""

_WRITE_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors that lose output: a full disk, a quota, a size limit, a broken device."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line. Return its exit code."""
    return run(lambda: _parse_quickly(sys.argv[1:]) if argv is None else _parse(list(argv)))


def run(parse: Callable[[], argparse.Namespace]) -> int:
    """Run the verb of a command line. Return its exit code."""
    try:
        return _run(parse)
    except OSError:  # the standard error cannot be written
        if os.environ.get("ULLAGE_DEBUG"):
            raise
        _drop(sys.stderr)
        return OUTPUT_LOST


def _run(parse: Callable[[], argparse.Namespace]) -> int:
    try:
        _require_output()
        arguments = parse()
        caution(unknown_variables(os.environ))
        warnings.showwarning = _show_warning
        Silence.show = complain
        code = cast("Callable[[argparse.Namespace], int]", arguments.act)(arguments)
        sys.stdout.flush()
    except Exit as end:
        return end.code
    except OSError as error:
        return _output_failed(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # a traceback is no message for people
        return _failed(error)
    return code


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Show warnings of the client like those of the server, and all others as Python does."""
    if category is UserWarning:
        caution([str(message)])
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _require_output() -> None:
    """Refuse a closed standard output; replace a closed standard error by /dev/null.

    The next opened file or socket would get the number of the closed descriptor, and so the output.

    Raises:
        InvalidRequest: the standard output is closed (`no-standard-output`).

    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # open to the end of the process
    if sys.stdout is None:
        text = "the standard output is closed; send it to a file, or to /dev/null"
        raise InvalidRequest(text, code="no-standard-output", field="stdout")


def _output_failed(error: OSError) -> int:
    """Return the exit code of a system error: of the output, or of a file that cannot be used."""
    if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has ended
        _drop(sys.stdout)
        return BROKEN_PIPE
    if error.errno in _REFUSALS and (path := error.filename2 or error.filename) is not None:
        _raise_for_debugging()
        complain(f"{path} cannot be used: {error.strerror}", "check its owner and mode, or name another file")
        return USAGE
    if error.errno in _WRITE_FAILURES:
        _drop(sys.stdout)
        complain(f"the output cannot be written: {error.strerror}", "write it to a disk with free space")
        return OUTPUT_LOST
    return _failed(error)


def _drop(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the flush at the end of Python does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _failed(error: Exception) -> int:
    """Show an error. Return its exit code."""
    _raise_for_debugging()
    if isinstance(error, UllageError):
        return report(error)
    complain(f"{type(error).__name__}: {error}", "ULLAGE_DEBUG=1 shows the traceback; please report it")
    return INTERNAL


class Parser(argparse.ArgumentParser):
    """A parser that reports errors of writing its help, unlike argparse's own, and reads `--sort -FIELD`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "exit_on_error": False})
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        if _REVERSIBLE in self._option_string_actions:
            words = _with_signs(words)
        self._words = words
        try:
            return super().parse_known_args(words, namespace)
        except argparse.ArgumentError as error:
            names = (error.argument_name or "").split("/")
            self._refuse(str(error), lambda option: any(name.startswith(option) for name in names))

    def error(self, message: str) -> NoReturn:
        """Refuse a command line as every wrong request is refused.

        Raises:
            InvalidRequest: always.

        """
        self._refuse(message, lambda _: False)

    def _refuse(self, message: str, wrong: Callable[[str], bool]) -> NoReturn:
        meant = _slurm_hint(self, self._words, wrong)
        raise InvalidRequest(f"{self.prog}: {message}; {meant}`{self.prog} --help` shows how", field="arguments")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is not valid: {one_of(value, action.choices)}")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:
            (file or sys.stderr).write(message)


def _slurm_hint(parser: argparse.ArgumentParser, words: Sequence[str], wrong: Callable[[str], bool]) -> str:
    """Return what is meant by the options of Slurm that are `wrong`, or that the parser of a verb does not know."""
    from ullage.cli.slurm_hints import hint, meant_by  # noqa: PLC0415  # only mistakes need it

    known = parser._option_string_actions  # noqa: SLF001  # argparse has no public name for it
    flags = [name for name, action in known.items() if action.nargs == 0]
    found = meant_by(
        parser.prog.rpartition(" ")[2],
        words,
        lambda word: (option := _option_of(word)) not in known or wrong(option),
        flags,
    )
    return hint(found)


def _option_of(word: str) -> str:
    """Return the option of a word: `--gres` of `--gres=gpu:1`, `-c` of `-c4`."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def _with_signs(words: list[str]) -> list[str]:
    """Return `--sort=FIELD` for `--sort FIELD`: argparse takes a field that begins with a minus for an option."""
    joined, rest = [], iter(words)
    for word in rest:
        field = next(rest, None) if word == _REVERSIBLE else None
        joined.append(word if field is None else f"{word}={field}")
    return joined


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the verb `only`; of every verb if it is None, which loads all modules.

    If it is empty, the parser knows the verbs, for its help, and none of their arguments.
    """
    parser = Parser(
        prog="ullage",
        description="Places work on GPUs: fairly, tightly, close together, and says why.",
        epilog=_EPILOG,
        formatter_class=VerbsInGroups,
    )
    parser.add_argument("--version", action="version", version=f"ullage {__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items() if not only else ((only, VERBS[only]),):
        own = verbs.add_parser(name, help=verb.help, description=verb.help, epilog=f"example: {verb.example}")
        if only in (None, name):
            if verb.module != _ALONE:
                import_msgspec()
            module = import_module(f"ullage.cli.{verb.module}")
            getattr(module, f"configure_{name}")(own)
    return parser


def _parse_quickly(argv: list[str]) -> argparse.Namespace:
    with loading():
        return _parse(argv)


def _parse(argv: list[str]) -> argparse.Namespace:
    word = next(iter(argv), None)
    verb = word if word in VERBS else ""
    if word is not None and not verb and word not in _OPTIONS:
        _refuse_verb(argv)
    return parse_with(build_parser(verb), argv, f"ullage {verb}")


def parse_with(parser: argparse.ArgumentParser, argv: Sequence[str], what: str) -> argparse.Namespace:
    """Return the arguments of the command line of `what`.

    Raises:
        Exit: argparse has printed the help or an error.
        InvalidRequest: an argument is not known.

    """
    try:
        arguments, unread = parser.parse_known_args(argv)
    except SystemExit as end:
        sys.stdout.flush()
        raise Exit(end.code if isinstance(end.code, int) else FAILED) from None
    if unread:
        first = next(iter(unread))
        own = parser_of(parser, argv)
        meant = _slurm_hint(own, argv[1:], lambda option: option in map(_option_of, unread))
        if not meant and first.startswith("--"):
            meant = did_you_mean(first.partition("=")[0], options_of(own))
        text = f"{what} does not take {' '.join(unread)}; {meant}`{what} --help` lists its arguments"
        raise InvalidRequest(text, field=first)
    return arguments


def parser_of(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the verb and the action that a command line names."""
    words = list(argv)
    while (actions := _actions(parser)) is not None:
        place = next((n for n, word in enumerate(words) if word in actions), None)
        if place is None:
            break
        parser, words = actions[words[place]], words[place + 1 :]
    return parser


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a parser."""
    return [option for option in parser._option_string_actions if option.startswith("--")]  # noqa: SLF001  # as above


def _actions(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    """Return the parsers of verbs or of actions; None if there are none."""
    nested = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001  # no public way
    return next((each.choices for each in nested), None)


def _refuse_verb(argv: Sequence[str]) -> NoReturn:
    """Refuse the first word of a command line, which is no verb.

    Raises:
        InvalidRequest: always.

    """
    word = next(iter(argv))
    if not word.startswith("-"):
        from ullage.cli.slurm_hints import verb_of  # noqa: PLC0415  # only mistakes need it

        meant = verb_of(argv) or did_you_mean(word, VERBS)
        raise invalid("verb", word, f"{meant}`ullage --help` lists the verbs")
    meant = did_you_mean(word, _OPTIONS) if word.startswith("--") else ""
    fix = f"{meant}write the verb first and its options after it, as in `ullage run -r cpu=1 -- true`"
    raise invalid("option", word, fix)


def _raise_for_debugging() -> None:
    """Raise the current exception again if ULLAGE_DEBUG is set."""
    if os.environ.get("ULLAGE_DEBUG"):
        raise  # noqa: PLE0704  # called from `except` only


if __name__ == "__main__":
    sys.exit(main())
