"""A notice is sent again by a server that was killed before it was taken."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import ClassVar

from tests.system.live_server import LiveServer


class SlowHook(BaseHTTPRequestHandler):
    """Shows each notice, and takes it once it is asked to."""

    arrived: ClassVar[Queue[dict]] = Queue()
    may_answer: ClassVar[Event] = Event()

    def do_POST(self) -> None:
        self.arrived.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.may_answer.wait(60)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_notice_that_was_being_sent_is_sent_again_after_the_server_was_killed(home: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowHook) as hook, LiveServer(home, "--gpus=0") as server:
        Thread(target=hook.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{hook.server_port}/"
        with server.client() as client:
            spec = {"application": "function", "id": "s", "notify": url}
            assert client.post("/v1/sessions", json=spec).status_code == 201
            assert client.post("/v1/sessions/s/close").status_code == 200
        first = SlowHook.arrived.get(timeout=60)
        server.kill()
        SlowHook.may_answer.set()
        server.start()
        assert SlowHook.arrived.get(timeout=60) == first
        assert (first["session"], first["outcome"]) == ("s", "succeed")
        hook.shutdown()
