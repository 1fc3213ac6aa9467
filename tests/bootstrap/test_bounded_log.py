"""The log of a server in the background is bounded by the server itself."""

import subprocess
import sys
from pathlib import Path

SPEAK = """
import sys
from pathlib import Path
from ullage.bootstrap import bounded_log, log
bounded_log.MOST_BYTES = 4096
log.bound_size(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    log.info("said", number=number)
print("printed after all")
"""


def speak(path: Path, lines: int, *, into: Path | None = None) -> None:
    """A process whose stdout and stderr are a file, as those of a server in the background, logs this many lines."""
    with (into or path).open("ab") as sink:
        subprocess.run([sys.executable, "-c", SPEAK, str(path), str(lines)], stdout=sink, stderr=sink, check=True)


def numbers(*paths: Path) -> list[int]:
    text = "".join(path.read_text() for path in paths if path.exists())
    return [int(line.rpartition("number=")[2]) for line in text.splitlines() if "number=" in line]


def test_a_full_log_is_moved_away_and_the_last_lines_are_there(tmp_path):
    path, before = tmp_path / "server.log", tmp_path / "server.log.1"
    speak(path, 500)
    assert path.stat().st_size < 4096 + 200
    assert before.stat().st_size < 4096 + 200
    kept = numbers(before, path)
    assert kept == list(range(kept[0], 500))
    assert 40 < len(kept) < 200
    assert path.read_text().endswith("printed after all\n")
    assert sorted(tmp_path.iterdir()) == [path, before]


def test_a_log_that_was_full_when_the_server_started_is_moved_away_by_its_first_line(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("x" * 5000)
    speak(path, 1)
    assert (tmp_path / "server.log.1").read_text() == "x" * 5000
    assert numbers(path) == [0]


def test_a_log_outside_the_home_is_unbounded(tmp_path):
    path, other = tmp_path / "server.log", tmp_path / "elsewhere"
    speak(path, 500, into=other)
    assert numbers(other) == list(range(500))
    assert not path.exists()


def test_a_log_that_cannot_be_moved_goes_on_where_it_is(tmp_path):
    path = tmp_path / "server.log"
    (tmp_path / "server.log.1").mkdir()
    (tmp_path / "server.log.1" / "in the way").touch()
    speak(path, 100)
    assert numbers(path) == list(range(100))
