"""Tests of Ctrl-C hold in whatever way their run was started."""

import subprocess
import sys

LOOK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
START = f"""
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import tests.conftest
subprocess.run([sys.executable, "-c", {LOOK!r}], check=True)
"""


def test_what_a_test_starts_hears_ctrl_c_though_the_run_was_started_in_the_background():
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
