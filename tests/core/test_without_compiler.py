"""The kernel gives the same answers with the compiler off (`NUMBA_DISABLE_JIT=1`)."""

import os
import subprocess
import sys
from importlib import import_module

import pytest

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="there is nothing to compare"),
]

MODULES = (
    *("test_filling", "test_published_scores", "test_leftover"),
    *("test_prices", "test_linked_cards", "test_alignment"),
)


@pytest.mark.parametrize("module", MODULES)
def test_without_the_compiler_the_answers_are_the_same(module):
    """Each module has `answers`: what its functions return for fixed cases."""
    code = f"from tests.core.{module} import answers\nfor answer in answers(): print(repr(answer))"
    plain = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    compiled = [repr(answer) for answer in import_module(f"tests.core.{module}").answers()]
    assert compiled == plain.stdout.splitlines()
    assert compiled
