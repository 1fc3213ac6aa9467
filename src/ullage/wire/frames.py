"""Frames between an engine and its workers, over a stream socket.

A frame is four bytes of length, big-endian, then one msgpack array whose first element is the number of the frame's
kind. A worker sends `Hello` first; the engine sends no response to it, and sends `Enter`, `Run` and `Leave` as the
scheduler decides. The end of the stream ends the worker.

Data shared by many tasks travels once: a task that carries `shared` also leaves it at the worker under `shared_id`.
The worker keeps the last `MAX_SHARED_DATA` that arrived, even if the task that brought them was given back. `Enter` and
`Leave` drop them all.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

PROTOCOL = 2
"""Version of these frames; a worker with another one is refused."""

MAX_FRAME = 1 << 30
"""Bytes in the largest frame, without its length."""

MAX_PAYLOAD = MAX_FRAME - (1 << 20)
"""Bytes of the largest task input or output: the limit of a frame less room for the rest of the frame."""

MAX_HELLO = 4096
"""Bytes of the largest frame from a peer that is not yet authenticated."""

_HEADER = 4


class FrameError(ValueError):
    """The bytes are not a frame, or the frame is too large."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """First frame of a worker; `secret` proves that this process is the executor it names."""

    protocol: int
    executor: str
    secret: str
    pid: int


class Entered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The result of entering a session: `code` is a `BindCode`."""

    code: int
    message: str = ""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of one task: `code` 0 is success; times are seconds since the epoch."""

    task: int
    claim: int
    code: int
    output: bytes | None
    message: str
    started_at: float
    ended_at: float


class Done(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Tasks that ended, in the order in which they ran."""

    outcomes: list[Outcome]


class GaveBack(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Claims of tasks that were not started because the task before them takes long."""

    claims: list[int]


class Left(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The worker has left the session and is idle."""


class Membership(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rank of the worker in a gang: `rank` 0..size-1."""

    id: str
    rank: int
    size: int


class Enter(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Enter a session; the response is `Entered`. `logs` is the directory of its logs."""

    session: str
    common_data: bytes | None = None
    gang: Membership | None = None
    logs: str = ""


class HandOut(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One task: `claim` identifies this hand-out, and its outcome has the same claim."""

    task: int
    claim: int
    input: bytes
    shared_id: int | None = None
    shared: bytes | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Run these tasks one after the other: each claim comes back in `Done` or in `GaveBack`."""

    tasks: list[HandOut]


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Leave the session once the tasks before this frame are done; the response is `Left`."""


class Signal(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Send a signal to the program of the task with this claim, if it runs, and write `text` to its log before.

    No frame answers it.
    """

    claim: int
    number: int
    text: str


FromWorker = Hello | Entered | Done | GaveBack | Left
ToWorker = Enter | Run | Leave | Signal

T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def encode(frame: FromWorker | ToWorker) -> bytearray:
    """Return the bytes of one frame, length included.

    Raises:
        FrameError: the frame is larger than `MAX_FRAME`.

    """
    buffer = bytearray(_HEADER)
    _encoder.encode_into(frame, buffer, _HEADER)
    size = len(buffer) - _HEADER
    if size > MAX_FRAME:
        raise _too_large(size, MAX_FRAME)
    buffer[:_HEADER] = size.to_bytes(_HEADER, "big")
    return buffer


class FrameReader(Generic[T]):
    """Split a stream of bytes, cut anywhere, into frames. `limit` is in bytes and may be changed."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T], limit: int) -> None:
        self.limit = limit
        self._decoder = decoder
        self._buffer = bytearray()
        self._needed = _HEADER

    @classmethod
    def from_worker(cls) -> FrameReader[FromWorker]:
        """Return a reader for the engine; small frames only, until `limit` is raised for an authenticated peer."""
        return FrameReader(_from_worker, MAX_HELLO)

    @classmethod
    def to_worker(cls) -> FrameReader[ToWorker]:
        """Return a reader for the worker."""
        return FrameReader(_to_worker, MAX_FRAME)

    def feed(self, data: bytes) -> list[T]:
        """Return the frames that `data` completes.

        Raises:
            FrameError: a frame above the limit or of unknown content; the stream can no longer be used.

        """
        if not self._buffer:
            rest, frames = self._decode(data)
            self._buffer += data[rest:]
            return frames
        self._buffer += data
        if len(self._buffer) < self._needed:  # a large frame comes in many pieces: do not decode after each
            return []
        rest, frames = self._decode(self._buffer)
        del self._buffer[:rest]
        return frames

    def _decode(self, data: bytes | bytearray) -> tuple[int, list[T]]:
        """Return the frames in `data`, and the position of the unfinished rest."""
        frames: list[T] = []
        start, size = 0, len(data)
        with memoryview(data) as view:
            while True:
                self._needed = _HEADER
                if size - start < _HEADER:
                    return start, frames
                length = int.from_bytes(view[start : start + _HEADER], "big")
                if length > self.limit:
                    raise _too_large(length, self.limit)
                self._needed += length
                if size - start < self._needed:
                    return start, frames
                with view[start + _HEADER : start + self._needed] as body:
                    frames.append(self._decode_one(body))
                start += self._needed

    def _decode_one(self, body: memoryview) -> T:
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise FrameError(f"a frame of {len(body)} bytes cannot be read: {error}") from None


def _too_large(size: int, limit: int) -> FrameError:
    return FrameError(f"a frame of {size} bytes is larger than the {limit} that are allowed")
