"""Whatever is paused, late or lost, at most one process believes that it leads."""

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.kube.rules import Refused, Rules
from tests.kube.store import Store
from ullage.kube.client.changes import Change, Create, Replace
from ullage.kube.client.errors import Unreachable, refusal
from ullage.kube.client.kinds import Kind
from ullage.kube.client.lease import Candidate, NotLeading
from ullage.kube.client.objects import Status

WHO = st.integers(0, 1)


async def at_once() -> None:
    """Nothing comes between."""


class LeaseApi:
    """The rules of an API server without a server, as one process reaches it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.lost = ""  # which way no message gets through: "there" or "back"
        self.before_write = self.after_write = at_once

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        return kind.read(self._call(lambda: self._rules.get((kind.plural, namespace, name))))

    async def write(self, change: Change) -> bytes:
        assert isinstance(change, Create | Replace)
        body, key = msgspec.to_builtins(change.body), ("leases", change.namespace, "leader")
        await self.before_write()
        if isinstance(change, Create):
            done = self._call(lambda: self._rules.create("leases", change.namespace, body))
        else:
            done = self._call(lambda: self._rules.replace(key, body))
        await self.after_write()
        return done

    def _call(self, work: Any) -> bytes:
        if self.lost == "there":
            raise Unreachable("lost")
        try:
            done = work()
        except Refused as refused:
            raise refusal(Status(code=refused.code, reason=refused.reason), "call") from None
        if self.lost == "back":
            raise Unreachable("lost")
        return json.dumps(done).encode()


class Elections(RuleBasedStateMachine):
    """Two candidates. Time goes on for both; one that is paused looks at it when it wakes."""

    @initialize()
    def begin(self) -> None:
        rules = Rules(Store())
        rules.create("namespaces", "", {"metadata": {"name": "default"}})
        self.now = 100.0
        self.apis = [LeaseApi(rules) for _ in range(2)]
        self.candidates = [
            Candidate(api, "leader", "default", clock=lambda: self.now)  # type: ignore[arg-type]  # a fake server
            for api in self.apis
        ]
        self.led: dict[int, int] = {}  # who led in which term

    @rule(who=WHO, lost=st.sampled_from(["", "", "", "there", "back"]))
    def attempt(self, who: int, lost: str) -> None:
        self.apis[who].lost = lost
        asyncio.run(self.candidates[who].attempt())
        self.apis[who].lost = ""

    @rule(who=WHO, seconds=st.sampled_from([1, 5, 9, 16]), written=st.booleans())
    def attempt_with_a_pause(self, who: int, seconds: float, written: bool) -> None:
        """One stands still just before or after it writes the record; the other one tries meanwhile, twice."""

        async def meanwhile() -> None:
            api.before_write = api.after_write = at_once
            for _ in range(2):
                await self.candidates[1 - who].attempt()
                self.now += seconds

        api = self.apis[who]
        setattr(api, "after_write" if written else "before_write", meanwhile)
        asyncio.run(self.candidates[who].attempt())
        api.before_write = api.after_write = at_once

    @rule(seconds=st.sampled_from([0.5, 2, 5, 9.9, 10, 14.9, 15]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=WHO)
    def release(self, who: int) -> None:
        asyncio.run(self.candidates[who].release())

    @invariant()
    def one_leads_at_most(self) -> None:
        epochs = [candidate.epoch for candidate in getattr(self, "candidates", ())]
        leading = {who: epoch for who, epoch in enumerate(epochs) if epoch is not None}
        assert len(leading) <= 1, leading
        for who, epoch in leading.items():
            assert self.led.setdefault(epoch, who) == who, "a term has one leader"
            assert epoch == max(self.led), "terms only grow"

    @invariant()
    def what_was_decided_in_a_term_that_is_over_is_not_written(self) -> None:
        for epoch, who in getattr(self, "led", {}).items():
            try:
                self.candidates[who].check(epoch)
            except NotLeading:
                continue
            assert epoch == max(self.led)


Elections.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
test_elections = Elections.TestCase
