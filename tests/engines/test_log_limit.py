"""What workers and programs print cannot fill the disk."""

import os

from ullage.engines.local.logs import begin_anew_if_larger


def test_a_file_past_its_limit_begins_anew_and_its_writer_goes_on(tmp_path):
    path = tmp_path / "1.out"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"x" * 5000)
    assert begin_anew_if_larger(path, 4096)
    os.write(writer, b"and on\n")
    os.close(writer)
    assert path.read_bytes() == b"[ullage: more than 4Ki was written; what came before is lost]\nand on\n"


def test_a_file_within_its_limit_is_left_alone(tmp_path):
    path = tmp_path / "1.out"
    path.write_bytes(b"x" * 4096)
    assert not begin_anew_if_larger(path, 4096)
    assert not begin_anew_if_larger(tmp_path / "absent", 4096)
    assert path.stat().st_size == 4096
