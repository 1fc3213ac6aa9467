"""A kubelet's PodResources socket: gRPC as a server speaks it, over HTTP/2 on a Unix socket."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, Any]) -> bytes:
    """A message of protocol buffers: numbers as varints, lists of numbers packed, all else by its length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
            continue
        packed = b"".join(map(varint, value)) if isinstance(value, list) else value
        data = packed.encode() if isinstance(packed, str) else packed
        out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def devices(resource: str, *ids: str, zones: tuple[int, ...] = ()) -> bytes:
    near = [(3, message(*((1, message((1, zone))) for zone in zones)))] if zones else []
    return message((1, resource), *((2, id_) for id_ in ids), *near)


def container(name: str, *held: bytes, cpus: list[int] | None = None, memory: tuple[bytes, ...] = ()) -> bytes:
    return message(
        (1, name), *((2, each) for each in held), *([(3, cpus)] if cpus else []), *((4, each) for each in memory)
    )


def pod(name: str, *containers: bytes, namespace: str = "default") -> bytes:
    return message((1, name), (2, namespace), *((3, each) for each in containers))


def listed(*pods: bytes) -> bytes:
    return message(*((1, each) for each in pods))


class PodResourcesServer:
    """Answers each call with `answer`, or refuses it with `status` where that is not 0, or says nothing at all."""

    def __init__(self, socket: Path, answer: bytes = b"") -> None:
        self.socket = socket
        self.answer = answer
        self.allocatable = b""  # the answer to GetAllocatableResources
        self._paths: dict[int, str] = {}
        self.status = 0
        self.silent = False
        self.raw: bytes | None = None  # what is sent in place of a framed message
        self.calls: list[str] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            self.socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # who asked may go at any moment
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = H2Connection(H2Configuration(client_side=False))
        http.initiate_connection()
        writer.write(http.data_to_send())
        left: dict[int, bytes] = {}
        while data := await reader.read(65536):
            for event in http.receive_data(data):
                if isinstance(event, RequestReceived):
                    headers = {bytes(key): bytes(value) for key, value in event.headers}
                    assert headers[b"content-type"] == b"application/grpc"
                    assert headers[b"te"] == b"trailers"
                    self.calls.append(headers[b":path"].decode())
                    self._paths[event.stream_id] = self.calls[-1]
                elif isinstance(event, DataReceived):
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded) and event.stream_id is not None and not self.silent:
                    left |= self._begin(http, event.stream_id)
            left = {stream: rest for stream, body in left.items() if (rest := self._send(http, stream, body))}
            writer.write(http.data_to_send())

    def _begin(self, http: H2Connection, stream: int) -> dict[int, bytes]:
        reported = [(":status", "200"), ("content-type", "application/grpc")]
        if self.status:
            refused = [("grpc-status", str(self.status)), ("grpc-message", "as the test wants it")]
            http.send_headers(stream, reported + refused, end_stream=True)
            return {}
        http.send_headers(stream, reported)
        answer = self.allocatable if self._paths[stream].endswith("GetAllocatableResources") else self.answer
        framed = b"\0" + len(answer).to_bytes(4, "big") + answer
        return {stream: framed if self.raw is None else self.raw}

    def _send(self, http: H2Connection, stream: int, body: bytes) -> bytes:
        """Send as much as the other side has room for; what is left."""
        while body and (size := min(http.local_flow_control_window(stream), http.max_outbound_frame_size)) > 0:
            http.send_data(stream, body[:size])
            body = body[size:]
        if not body:
            http.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        return body
