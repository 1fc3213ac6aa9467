"""Callbacks of those who mirror the ledger: each binding is reported once, when it is durable."""

from __future__ import annotations

from collections.abc import Callable

from ullage.model.allocation import Allocation

Handler = Callable[[Allocation], None]


class BindHandlers:
    """The handlers, and the uids that were reported to them."""

    def __init__(self) -> None:
        self._handlers: dict[object, Handler] = {}
        self._reported: set[str] = set()

    def register(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` once for each binding; call the answer to stop."""
        key = object()
        self._handlers[key] = handler

        def unregister() -> None:
            self._handlers.pop(key, None)

        return unregister

    def notify(self, allocation: Allocation) -> tuple[BaseException, ...]:
        """Call all handlers, once per uid. Return the exceptions that they raised; none keeps another from its call."""
        faults: list[BaseException] = []
        if allocation.id in self._reported:
            return ()
        self._reported.add(allocation.id)
        for handler in tuple(self._handlers.values()):
            try:
                handler(allocation)
            except Exception as fault:  # noqa: BLE001 - one handler must not keep the others from hearing
                faults.append(fault)
        return tuple(faults)

    def forget(self, uid: str) -> None:
        """Forget a uid that is gone, so that a later binding of it is reported."""
        self._reported.discard(uid)
