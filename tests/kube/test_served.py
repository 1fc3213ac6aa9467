"""Kinds that an API server lacks, or gets later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from tests.virtual_loop import run_virtual
from ullage.kube.client.api import KubeApi, ListPage
from ullage.kube.client.errors import ApiForbidden, Unreachable
from ullage.kube.client.kinds import DEVICE_TAINT_RULES, HYPERNODES, Kind
from ullage.kube.client.served import LOOK_AGAIN_S, LateInformer, wait_served
from ullage.model.error import NotFound, UllageError

NEW, OLD = DEVICE_TAINT_RULES[:2]


class Server:
    """Lists are empty, or fail as the test says; a watch reports nothing."""

    def __init__(self, **errors: UllageError) -> None:
        self.errors = errors
        self.lists: list[str] = []

    async def pages(self, kind: Kind[Any], *_select: Any, limit: int = 500) -> AsyncIterator[ListPage[Any]]:
        name = f"{kind.plural}_{kind.version}"
        self.lists.append(name)
        if name in self.errors:
            raise self.errors[name]
        yield ListPage((), "1")

    async def watch(self, *_args: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    @property
    def api(self) -> KubeApi:
        return cast("KubeApi", self)


def name_of(kind: Kind[Any]) -> str:
    return f"{kind.plural}_{kind.version}"


def test_the_first_version_that_is_served_is_watched_and_an_older_one_counts_where_it_is_missing() -> None:
    async def story() -> None:
        errors: list[UllageError] = []
        (found,) = await wait_served(Server().api, DEVICE_TAINT_RULES, missed=errors.append)
        assert found is NEW
        older = Server(**{name_of(NEW): NotFound("no such kind")})
        (found,) = await wait_served(older.api, DEVICE_TAINT_RULES, missed=errors.append)
        assert found is OLD
        assert errors == []

    run_virtual(story())


def test_a_server_that_does_not_answer_is_asked_again_soon_and_one_without_the_kind_after_minutes() -> None:
    async def story() -> None:
        loop, server = asyncio.get_running_loop(), Server(**{name_of(HYPERNODES): Unreachable("lost")})
        missed: list[tuple[float, str]] = []

        def note(error: UllageError) -> None:
            missed.append((loop.time(), error.code))
            name = name_of(HYPERNODES)
            steps = {"kube-unreachable": NotFound("no such kind"), "not-found": ApiForbidden("not for you")}
            if error.code in steps:
                server.errors[name] = steps[error.code]
            else:
                del server.errors[name]

        await wait_served(server.api, [HYPERNODES], missed=note)
        assert missed == [(0.0, "kube-unreachable"), (1.0, "not-found"), (1.0 + LOOK_AGAIN_S, "kube-forbidden")]
        assert loop.time() == 1.0 + 2 * LOOK_AGAIN_S

    run_virtual(story())


def test_an_informer_is_ready_when_the_kind_is_known_to_be_missing_and_again_when_its_objects_are_known() -> None:
    async def story() -> None:
        name = name_of(HYPERNODES)
        server = Server(**{name: Unreachable("lost")})
        late = LateInformer(server.api, [HYPERNODES], lambda _news: None)
        work = asyncio.create_task(late.run())
        await asyncio.sleep(0.5)
        assert not late.ready
        server.errors[name] = NotFound("no such kind")
        await late.wait_ready()
        assert late.informer is None
        del server.errors[name]
        await asyncio.sleep(2 * LOOK_AGAIN_S)
        assert late.ready
        assert late.informer is not None
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    run_virtual(story())
