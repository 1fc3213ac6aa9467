"""A backend of joblib: its batches of calls are tasks of a session."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Unpack

from joblib import register_parallel_backend  # type: ignore[import-untyped]  # it has no types
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase  # type: ignore[import-untyped]  # as above

from ullage.client.client import connect
from ullage.client.executor import Executor
from ullage.client.spec import SessionOptions
from ullage.model.request import ResourceRequirement
from ullage.wire.amount import AmountBody

_LEAST = 2
"""joblib runs the calls in its own process where there is one job at a time."""


def register_joblib() -> None:
    """Make "ullage" a backend of joblib: `joblib.parallel_config("ullage", n_jobs=4, resreq="cpu=1")`.

    The other arguments of `parallel_config` are `endpoint`, `token` and the options of a session. `n_jobs=-1`, the
    default, is as many executors as all nodes could hold. With `n_jobs=1` joblib runs the calls itself.

    Raises:
        ImportError: joblib is not installed.

    """
    register_parallel_backend("ullage", UllageBackend)


class UllageBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # they have no types
    """One session for each call of `joblib.Parallel`, or for each `with Parallel(...)` block."""

    supports_retrieve_callback = True
    supports_timeout = True
    default_n_jobs = -1

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        nesting_level: int | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        self._endpoint = endpoint
        self._token = token
        self._options = options
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of calls at a time: `n_jobs`, or for -1 (-2, ...) all executors (but one, ...)."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(self._room() + 1 + n_jobs, _LEAST)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Open a session for `n_jobs` executors, unless joblib runs the calls itself."""
        self.parallel = parallel
        count = self.effective_n_jobs(n_jobs)
        self.terminate()
        if count > 1:
            options: SessionOptions = {"max_instances": count, **self._options}
            self._executor = Executor(endpoint=self._endpoint, token=self._token, **options)
        return count

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], object] | None = None) -> Future[Any]:
        """Submit a batch of calls."""
        assert self._executor is not None
        future: Future[Any] = self._executor.submit(_call, func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch, or raise the exception of one of its calls."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all calls, running ones too."""
        if self._executor is not None:
            self._executor.session.cancel()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def terminate(self) -> None:
        """Close the session."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def _room(self) -> int:
        """Return how many executors all nodes could hold, were they empty; one for each CPU without a requirement."""
        if (most := self._options.get("max_instances")) is not None:
            return most
        request = ResourceRequirement.from_value(self._options.get("resreq") or "cpu=1")
        with connect(self._endpoint, self._token) as client:
            return sum(_fit(request, node.allocatable) for node in client.nodes())


def _fit(request: ResourceRequirement, amount: AmountBody) -> int:
    pairs = (
        (request.cpu_milli, amount.cpu_milli),
        (request.memory_bytes, amount.memory_bytes),
        (1000 * request.gpu_count if request.part is None else 0, amount.gpu_milli),
    )
    return min((has // asked for asked, has in pairs if asked), default=1)


def _call(batch: Callable[[], Any]) -> Any:
    return batch()
