"""The commands of the page on batch work print the output of the page."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.system.live_server import LiveServer
from tests.system.test_how_to_pages import blocks, steps

PAGE = "batch-work.md"


def test_every_command_of_the_page_on_batch_work_prints_the_output_of_the_page(home: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    walked = steps(PAGE)
    (tmp_path / "job.sh").write_text(blocks(PAGE, "sh")[0])
    (tmp_path / "job.toml").write_text(blocks(PAGE, "toml")[0])
    script = [f'ullage() {{ {sys.executable} -m ullage.cli.main "$@"; }}']
    for step in walked:
        script += [step.command, 'printf "\\n=== end\\n"']
    with LiveServer(home, "--gpus=2"):
        done = subprocess.run(
            [bash, "-c", "\n".join(script)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=True,
        )
    # On a slow machine `run` says that it waits.
    printed = re.split(r"\n=== end\n", re.sub(r"^ullage: \S+ waits: .*\n", "", done.stdout, flags=re.MULTILINE))
    for step, out in zip(walked, printed, strict=False):
        assert out.rstrip("\n") == (step.shown or "").rstrip("\n"), step.command
    assert len(printed) == len(walked) + 1
    assert blocks(PAGE, "console")
