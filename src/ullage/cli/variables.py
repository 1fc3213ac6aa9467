"""The environment of a program, from that of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ullage.model.environment import check_environment
from ullage.model.error import invalid

_PASSED = ("PATH", "HOME", "LANG", "TERM", "TZ", "USER", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
_PASSED_PREFIX = "LC_"


def choose_environment(own: Mapping[str, str], entries: Sequence[str], *, everything: bool) -> dict[str, str]:
    """Return the environment of the program: common variables of `own` or `everything`, and `entries`.

    An entry is `NAME=VALUE`, or `NAME` for its value in `own`.

    Raises:
        InvalidRequest: an entry has no name, an invalid name or value, or no value in `own`.

    """
    common = {
        name: value for name, value in own.items() if everything or name in _PASSED or name.startswith(_PASSED_PREFIX)
    }
    return common | chosen_variables(own, entries)


def chosen_variables(own: Mapping[str, str], entries: Sequence[str]) -> dict[str, str]:
    """Return the variables that entries name, as `choose_environment` describes them."""
    chosen = {}
    for entry in entries:
        name, given, value = entry.partition("=")
        if not name:
            raise invalid("--env", entry, "write NAME=VALUE, or NAME for the value it has here")
        if not given and name not in own:
            fix = "it is not set here; write NAME=VALUE"
            if not name.isidentifier():  # -e FILE of Slurm
                fix = "-e passes a variable on, as NAME=VALUE; `ullage logs ID` shows what the program writes"
            raise invalid("--env", entry, fix)
        check_environment("--env", {name: value})
        chosen[name] = value if given else own[name]
    return chosen
