"""What was compiled before an update is not used after it, whichever file the update has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ullage

pytestmark = pytest.mark.timeout(900)

ASKS = "from ullage.core.kernel.nearest import _touched as f; import numpy as np; print(f(np.array([1, 6, 6]), 3))"


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_what_calls_a_function_of_another_file_is_compiled_again_with_it(tmp_path: Path) -> None:
    source = Path(ullage.__file__).parent
    for part in ("core", "model"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / part, tmp_path / "ullage" / part, ignore=ignored)
    (tmp_path / "ullage" / "__init__.py").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}

    def answer() -> int:
        command = [sys.executable, "-c", ASKS]
        told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return int(told.stdout)

    assert answer() == 2 * 128 + 3
    assert any(tmp_path.rglob("nearest._touched*.nbc"))
    masks = tmp_path / "ullage" / "core" / "kernel" / "masks.py"
    head = "def width_of(mask: int) -> int:"
    masks.write_text(masks.read_text().replace(head, f"{head}\n    return 7\n\n\ndef _before(mask: int) -> int:"))
    assert answer() == 2 * 128 + 7
