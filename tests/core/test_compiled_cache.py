"""Compiled code is cached where a directory can be written; damaged entries are compiled again."""

import os
import subprocess
import sys

import pytest

from ullage.core.kernel.compiling import cache

pytestmark = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")

COMPILE = """
import os, sys, warnings
from pathlib import Path
warnings.showwarning = lambda message, *_: print("warned:", message)
sys.path.insert(0, sys.argv[1])
import own
print(own.double(21), own.triple(5))
from ullage.core.kernel.compiling.cache import directory
where = directory()
print("cached:", len(list(Path(where).rglob("*.nbi"))) if where else None)
print(where)
"""
OWN = """
from ullage.core.kernel.compiled import compiled

@compiled
def double(number):
    return 2 * number

@compiled
def triple(number):
    return 3 * number
"""


def compile_with(tmp_path, source=OWN, **environment):
    (tmp_path / "own.py").write_text(source)
    own = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
    # Python takes byte code of an edited source for current if its size and the second of its change are the same.
    own["PYTHONDONTWRITEBYTECODE"] = "1"
    # the one place that is looked at is not given
    own |= {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", **environment}
    command = [sys.executable, "-c", COMPILE, str(tmp_path)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_without_a_directory_that_can_be_written_a_temporary_one_is_taken_and_goes_with_the_process(tmp_path):
    (tmp_path / "tmp").mkdir()
    warned, answers, files, where = compile_with(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert warned.startswith("warned: compiled code cannot be cached: none of NUMBA_CACHE_DIR, ")
    assert "set NUMBA_CACHE_DIR to a directory that can be written" in warned
    assert (answers, files) == ("42 15", "cached: 2")
    assert where.startswith(str(tmp_path / "tmp" / "ullage-compiled-"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_without_any_directory_at_all_it_compiles_for_this_process(tmp_path):
    prelude = "import tempfile; tempfile.mkdtemp = lambda **_: (_ for _ in ()).throw(OSError(30, 'read-only'))"
    (tmp_path / "sitecustomize.py").write_text(prelude)
    warned, answers, files, *_ = compile_with(tmp_path, PYTHONPATH=str(tmp_path))
    assert warned.startswith("warned: compiled code cannot be cached: none of ")
    assert (answers, files) == ("42 15", "cached: None")


def test_a_directory_that_can_be_written_is_used_without_a_word(tmp_path):
    answers, files, where = compile_with(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (answers, files, where) == ("42 15", "cached: 2", str(tmp_path / "cache"))


def test_code_that_finds_no_room_on_disk_serves_its_process_all_the_same():
    def save(_signature, _data):
        raise OSError(28, "No space left on device", "/cache/x.nbi")

    with pytest.warns(UserWarning, match="cannot be cached in /cache/x.nbi: No space left on device"):
        cache._save_if_possible(save)(None, None)


def files_of(cache):
    """The index and the data file of `double`."""
    return sorted(cache.rglob("own.double*.nbi")) + sorted(cache.rglob("own.double*.nbc"))


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE = {
    "empty": lambda _content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("which", [0, 1], ids=["index", "data"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_and_written_again(tmp_path, which, damage):
    cache = tmp_path / "cache"
    compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))
    damaged = files_of(cache)[which]
    damaged.write_bytes(DAMAGE[damage](damaged.read_bytes()))
    warned, answers, files, _ = compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert warned.startswith(f"warned: compiled code in {damaged} cannot be used (")
    assert (answers, files) == ("42 15", "cached: 2")
    assert compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))[0] == "42 15"


def test_code_with_a_flipped_bit_is_not_run(tmp_path):
    cache = tmp_path / "cache"
    compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))
    data = files_of(cache)[1]
    data.write_bytes(flipped(data.read_bytes()))
    warned, answers, *_ = compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert warned.startswith(f"warned: compiled code in {data} cannot be used (")
    assert answers == "42 15"


def test_code_of_an_older_source_under_the_same_name_is_not_run(tmp_path):
    """A process that still compiles the older source writes its file after that of a newer process."""
    cache = tmp_path / "cache"
    compile_with(tmp_path, NUMBA_CACHE_DIR=str(cache))
    data = files_of(cache)[1]
    older, edited = data.read_bytes(), OWN.replace("2 * number", "4 * number")
    assert compile_with(tmp_path, edited, NUMBA_CACHE_DIR=str(cache))[0] == "84 15"
    data.write_bytes(older)
    assert compile_with(tmp_path, edited, NUMBA_CACHE_DIR=str(cache))[0] == "84 15"
