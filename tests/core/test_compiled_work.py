"""What was compiled before an update is not used after it, whichever file the update has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ullage

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled"),
]

PROBE = """
import numpy as np
from ullage.core.kernel.compiled import compiled

@compiled
def half(a):
    return a[0] / 2

print(half(np.array([3])), half(np.array([2.5])))
"""
ASKS = "from ullage.core.kernel.nearest import _touched as f; import numpy as np; print(f(np.array([1, 6, 6]), 3))"


def reported(directory: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (directory, Path(ullage.__file__).parents[1])))
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_what_calls_a_function_of_another_file_is_compiled_again_with_it(tmp_path: Path) -> None:
    source = Path(ullage.__file__).parent
    for part in ("core", "model"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / part, tmp_path / "ullage" / part, ignore=ignored)
    (tmp_path / "ullage" / "__init__.py").touch()

    def answer() -> int:
        return int(reported(tmp_path, "-c", ASKS))

    assert answer() == 2 * 128 + 3
    assert any(tmp_path.rglob("nearest._touched*.nbc"))
    masks = tmp_path / "ullage" / "core" / "kernel" / "masks.py"
    head = "def width_of(mask: int) -> int:"
    masks.write_text(masks.read_text().replace(head, f"{head}\n    return 7\n\n\ndef _before(mask: int) -> int:"))
    assert answer() == 2 * 128 + 7


def test_what_others_have_written_under_the_same_name_is_not_run(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    assert reported(tmp_path, str(probe)) == "1.5 1.25\n"
    one, other = sorted((tmp_path / "__pycache__").glob("probe.half*.nbc"))
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert reported(tmp_path, str(probe)) == "1.5 1.25\n"


STEPS = """
from ullage.core.kernel.compiled import inlined

@inlined
def step(a):
    return a[0] + 1
"""
STRIDES = """
from ullage.core.kernel.compiled import inlined

@inlined
def stride(a):
    return a[0] + 10
"""
LOOPS = """
from ullage.core.kernel.compiled import compiled

def loop_over(inner):
    @compiled
    def loop(a):
        return inner(a) * 2

    return loop
"""
MAIN = """
import sys
import numpy as np
from loops import loop_over
from steps import step
from strides import stride

for inner in (step, stride):
    loop = loop_over(inner)
    loop(np.array([3]))
    hits = sum(loop.stats.cache_hits.values())
    print(inner.__name__, loop(np.array([3])), "kept" if hits else "compiled")
"""


def test_a_loop_is_compiled_again_when_a_function_it_is_built_around_changes_and_the_others_stay(
    tmp_path: Path,
) -> None:
    parts = {"steps": STEPS, "strides": STRIDES, "loops": LOOPS, "main": MAIN}
    for name, text in parts.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert reported(tmp_path, str(tmp_path / "main.py")) == "step 8 compiled\nstride 26 compiled\n"
    assert reported(tmp_path, str(tmp_path / "main.py")) == "step 8 kept\nstride 26 kept\n"
    (tmp_path / "steps.py").write_text(STEPS.replace("+ 1", "+ 2"))
    assert reported(tmp_path, str(tmp_path / "main.py")) == "step 10 compiled\nstride 26 kept\n"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
    assert reported(copy, str(copy / "main.py")) == "step 10 kept\nstride 26 kept\n"


def test_what_comes_from_no_file_is_compiled_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "main.py").write_text(
        "import numpy as np\nfrom loops import loop_over\nmade = {}\n"
        "exec('def step(a):\\n    return a[0] + 1\\n', made)\n"
        "from numba.extending import register_jitable\n"
        "print(loop_over(register_jitable(made['step']))(np.array([3])))\n"
    )
    assert reported(tmp_path, str(tmp_path / "main.py")) == "8\n"
    assert not list(tmp_path.rglob("*.nbc"))
