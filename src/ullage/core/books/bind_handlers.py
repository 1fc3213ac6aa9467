"""Whoever mirrors the ledger elsewhere hears of each binding once, when it is durable."""

from __future__ import annotations

from collections.abc import Callable

from ullage.model.allocation import Allocation

Handler = Callable[[Allocation], None]


class BindHandlers:
    """Handlers, and the uids that they have been told of."""

    def __init__(self) -> None:
        self._handlers: dict[object, Handler] = {}
        self._told: set[str] = set()

    def register(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` once for each binding; call the answer to stop."""
        key = object()
        self._handlers[key] = handler

        def unregister() -> None:
            self._handlers.pop(key, None)

        return unregister

    def notify(self, allocation: Allocation) -> tuple[BaseException, ...]:
        """Tell all handlers, once per uid. Their faults are returned, and stop nobody."""
        faults: list[BaseException] = []
        if allocation.id in self._told:
            return ()
        self._told.add(allocation.id)
        for handler in tuple(self._handlers.values()):
            try:
                handler(allocation)
            except Exception as fault:  # noqa: BLE001 - one handler must not keep the others from hearing
                faults.append(fault)
        return tuple(faults)

    def forget(self, uid: str) -> None:
        """It is gone: should it be bound again, that is told again."""
        self._told.discard(uid)
