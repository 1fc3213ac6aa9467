"""Tests of Ctrl-C work in foreground and background runs."""

import subprocess
import sys

LOOK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
START = f"""
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import tests.conftest
subprocess.run([sys.executable, "-c", {LOOK!r}], check=True)
"""


def test_processes_of_a_test_receive_ctrl_c_in_a_background_run():
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
