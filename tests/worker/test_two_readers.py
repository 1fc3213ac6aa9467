"""The main thread of a worker and its watcher read one stream."""

from __future__ import annotations

import socket
import threading

from ullage.wire import frames
from ullage.worker.stream import WorkerStream


class SlowSocket:
    """A socket whose reader is interrupted between the bytes and what they mean, until the test lets it go on."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.has_read, self.may_go_on = threading.Event(), threading.Event()

    def recv(self, size: int, flags: int = 0) -> bytes:
        assert flags & socket.MSG_DONTWAIT, "waits for more although there is a frame"
        data = self._connection.recv(size, flags)
        self.has_read.set()
        assert self.may_go_on.wait(60)
        return data


def test_a_reader_that_waited_for_the_other_one_does_not_wait_for_more() -> None:
    engine, worker = socket.socketpair()
    with engine, worker:
        slow = SlowSocket(worker)
        stream = WorkerStream(slow)  # type: ignore[arg-type]  # only `recv` is called
        engine.sendall(frames.encode(frames.Leave()))
        watcher = threading.Thread(target=stream.receive, args=(socket.MSG_DONTWAIT,))
        watcher.start()
        assert slow.has_read.wait(60)
        slow.may_go_on.set()
        assert stream.receive()
        watcher.join()
    assert list(stream.inbox) == [frames.Leave()]
