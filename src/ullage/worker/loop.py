"""The main loop of a worker: enter a session, run tasks, leave, until the stream ends or SIGTERM arrives."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from types import FrameType

from ullage.wire import frames
from ullage.worker import failure, log_directory
from ullage.worker.context import Context, Gang, enter_session, leave_session, set_task
from ullage.worker.own_signals import OwnSignals, Signalled
from ullage.worker.recorder import Recorder, Unrecorded
from ullage.worker.service import Service, TaskFailed
from ullage.worker.stream import Batch, Job, WorkerStream
from ullage.worker.watcher import Watcher

FLUSH_S = 0.002
"""Seconds for which outcomes of a running batch are collected before they are sent."""

ENTER_FAILED = 12
"""The bind code (`model.executor.BindCode`) of a session that could not be entered."""


class Stopped(KeyboardInterrupt):
    """SIGTERM: the executor must end. A task may clean up shortly."""


def serve(service: Service, *, record: bool = True) -> None:
    """Run `service` in this executor process until the engine ends it. Call it from the main thread.

    With `record`, what a task prints is kept as its log; the process and its children print through pipes then.

    Raises:
        KeyError: this process was not started by an engine (`ULLAGE_WORKER_SOCKET` is not set).
        OSError: the engine does not answer.

    """
    path = os.environ["ULLAGE_WORKER_SOCKET"]
    executor = os.environ["ULLAGE_EXECUTOR"]
    secret = os.environ.pop("ULLAGE_WORKER_SECRET")
    # Before the connection and the first thread, which its process must not have.
    recorder = Recorder() if record and log_directory.ROOT in os.environ else Unrecorded()
    stream = WorkerStream.connect(path, executor, secret)
    loop = _Loop(service, stream, executor, recorder)
    _detach_forks(stream)
    try:
        loop.run()
    except (BrokenPipeError, ConnectionResetError):
        return  # the engine is gone
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process ends already
        stream.close()


def _detach_forks(stream: WorkerStream) -> None:
    """Have processes forked by a task close the stream and reset SIGTERM.

    SIGTERM is blocked until the child is ready: Python drops signals that it caught before the fork.
    """
    mask: set[int] = set()

    def before() -> None:
        mask.clear()
        mask.update(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def in_child() -> None:
        stream.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


class _Loop:
    """Handles received frames in order."""

    def __init__(self, service: Service, stream: WorkerStream, executor: str, recorder: Unrecorded) -> None:
        self._service = service
        self._recorder = recorder
        self._stream = stream
        self._executor = executor
        self._stopping = False
        self._interruptible = False
        signal.signal(signal.SIGTERM, self.on_sigterm)
        self._own_signals = OwnSignals()
        self._signalling = threading.Lock()
        self._running: Job | None = None
        self._watcher = Watcher(stream, self._deliver)

    def on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt a task or a wait at once, but never in the middle of a frame."""
        self._stopping = True
        if self._interruptible:
            self._interruptible = False  # once: the cleanup of the task is not interrupted
            raise Stopped

    def _deliver(self, frame: frames.Signal) -> None:
        """Signal the task of this claim, unless it has ended. The watcher calls this."""
        with self._signalling:
            job = self._running
            if job is None or job.claim != frame.claim:
                return
            if isinstance(self._service, Signalled):
                self._service.on_signal(frame.number, frame.text)
            else:
                self._own_signals.send(frame.number, frame.text, job.task.id)

    def _allow_interrupt(self) -> None:
        """Let SIGTERM interrupt user code from now on.

        Raises:
            Stopped: SIGTERM arrived before.

        """
        self._interruptible = True
        if self._stopping:
            raise Stopped

    def run(self) -> None:
        try:
            while not self._stopping and self._wait():
                item = self._stream.inbox[0]
                if isinstance(item, frames.Enter):
                    self._enter(item)
                elif isinstance(item, frames.Leave):
                    self._leave()
                else:
                    self._run(item)
                self._stream.inbox.popleft()
        except Stopped:
            pass
        self._stream.flush()

    def _wait(self) -> bool:
        """Wait until the inbox has an item. Return False if the stream or the process ends."""
        self._interruptible = True
        try:
            while not self._stream.inbox:
                if self._stopping or not self._stream.receive():
                    return False
        finally:
            self._interruptible = False
        return True

    def _enter(self, frame: frames.Enter) -> None:
        gang = Gang(frame.gang.id, frame.gang.rank, frame.gang.size) if frame.gang else None
        context = Context(self._executor, frame.session, None, frame.common_data, gang=gang, logs=frame.logs)
        enter_session(context)
        if log_directory.ROOT in os.environ:
            self._recorder.enter(log_directory.log_directory(context))
        answer = frames.Entered(0)
        try:
            self._allow_interrupt()
            self._service.on_session_enter(context)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001  # user code, SystemExit included, fails the bind only
            answer = frames.Entered(ENTER_FAILED, failure.message(error, skip=1))
        finally:
            self._interruptible = False
        self._stream.send(answer)

    def _leave(self) -> None:
        try:
            self._allow_interrupt()
            self._service.on_session_leave()
        except Stopped:
            raise
        except BaseException:  # noqa: BLE001  # user code: the session is left in any case
            traceback.print_exc()
        finally:
            self._interruptible = False
        leave_session()
        self._stream.send(frames.Left())

    def _run(self, batch: Batch) -> None:
        job = _take(batch)  # before the clock starts: the first task of a batch is never returned
        self._watcher.begin()
        flushed = time.monotonic()
        while job is not None and not self._stopping:
            self._stream.add(self._run_one(job))
            job = _take(batch)
            if job is None:
                break
            now = time.monotonic()
            if self._stream.full or now - flushed >= FLUSH_S:
                self._stream.flush()
                flushed = now
        set_task(None)
        # In this order: when the engine answers the last outcome, the watcher must not return tasks.
        self._watcher.end()
        self._stream.flush()

    def _run_one(self, job: Job) -> frames.Outcome:
        task = job.task
        set_task(task.id)
        self._recorder.begin(task.id)
        output, code, message = None, 0, ""
        with self._signalling:
            self._running = job
        started_at = time.time()
        try:
            self._allow_interrupt()
            output = self._service.on_task_invoke(task)
        except Stopped:
            raise
        except TaskFailed as failed:
            output, code, message = failed.output, failed.code, failure.bounded(failed.message)
        except BaseException as error:  # noqa: BLE001  # user code: any exception fails this task only
            code, message = 1, failure.message(error, skip=1)
        finally:
            self._interruptible = False
            with self._signalling:
                self._running = None
            self._recorder.end()
        ended_at = time.time()
        if output is not None and (wrong := _unsendable(output)):
            output, code, message = None, code or 1, wrong
        return frames.Outcome(
            task.id, job.claim, code, output, message=message, started_at=started_at, ended_at=ended_at
        )


def _take(batch: Batch) -> Job | None:
    """Return the next task; None if the watcher returned it to the engine."""
    try:
        return batch.popleft()
    except IndexError:
        return None


def _unsendable(output: object) -> str | None:
    """Return why an output cannot be sent; None if it can."""
    if not isinstance(output, bytes):
        return f"TypeError: the service returned {type(output).__name__}, not bytes or None"
    if len(output) > frames.MAX_PAYLOAD:
        return f"the output has {len(output)} bytes; at most {frames.MAX_PAYLOAD} can be sent"
    return None


def configure_streams() -> None:
    """Flush standard output and error after each line, and escape characters that UTF-8 cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]  # text streams
