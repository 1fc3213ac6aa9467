"""The types that a caller sees, by mypy."""

import os
import subprocess
import sys
from pathlib import Path

import ullage


def test_mypy_knows_the_types_of_results_and_finds_wrong_calls(tmp_path: Path) -> None:
    file = Path(__file__).parent / "typed_calls.py"
    source = Path(ullage.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(file)],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
