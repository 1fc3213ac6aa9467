"""Any history of bindings: cards are never promised twice, a repeat changes nothing, and failures leave no trace."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.bindings import ALONE, MIB, SLICED, TURNS, MemoryBindings, a_card, a_node, an_app, ask, overfull

from ullage.model.compute import AppState, Pick
from ullage.model.compute_result import FailedCheck
from ullage.model.error import UllageError, Unavailable
from ullage.service.bindings import Bindings
from ullage.service.bindings_snapshot import Caller, NamedApp

CARDS = (
    a_card("n1", "d1", 8000, ALONE),
    a_card("n1", "d2", 8000, SLICED),
    a_card("n2", "d3", 8000, SLICED),
    a_card("n2", "d4", 8000, TURNS),
)
APPS = [("a", "alice"), ("b", "alice"), ("a", "bob"), ("c", "bob")]
apps = st.sampled_from(APPS)
devices = st.sampled_from(["d1", "d2", "d3", "d4"])
amounts = st.sampled_from([0, 3000, 5000, 8000])
ADMIN = Caller("root", is_admin=True)


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        several = ask(3000, several_nodes=True)
        kinds = [an_app(name, owner, several, state=AppState.STOPPED) for name, owner in APPS]
        self.port = MemoryBindings((a_node(*CARDS[:2]), a_node(*CARDS[2:]))).have(*kinds)
        self.port.facts["tenants"] = 2

    def do(self, what, app, *args):
        try:
            return asyncio.run(getattr(Bindings(self.port), what)(Caller(app[1]), NamedApp(app[0]), *args))
        except UllageError as error:
            return error

    def twice(self, what, app, *args):
        """The second time nothing changes but for what was refused."""
        first = self.do(what, app, *args)
        after = self.port.state
        second = self.do(what, app, *args)
        assert self.port.state == after
        assert type(first) is type(second)
        return first

    @rule(app=apps, chosen=st.lists(st.tuples(devices, amounts), max_size=3))
    def resume(self, app, chosen):
        where = {card.id: card.node for card in CARDS}
        picks = [Pick(where[device], device, mib * MIB) for device, mib in chosen]
        planned = self.do("validate", app, picks)
        before = self.port.state
        rows = self.twice("resume", app, picks)
        if isinstance(planned, FailedCheck):
            assert (type(rows), self.port.state) == (FailedCheck, before)
        else:
            assert {(row.card, row.memory_bytes) for row in rows} == {
                (row.card, row.memory_bytes) for row in planned.rows
            }

    @rule(app=apps, what=st.sampled_from(["suspend", "uninstall"]))
    def leave(self, app, what):
        self.twice(what, app)
        assert self.do("rows", app) == ()

    @rule(app=apps, assign=st.lists(st.tuples(devices, amounts), max_size=2), unassign=st.lists(devices, max_size=2))
    def reassign(self, app, assign, unassign):
        self.twice("reassign", app, [(device, mib * MIB) for device, mib in assign], unassign)

    @rule(card=st.sampled_from(CARDS), share=st.sampled_from([ALONE, SLICED, TURNS]))
    def switch(self, card, share):
        asyncio.run(Bindings(self.port).switch(ADMIN, card.key, share))

    @rule(app=apps, card=st.sampled_from(CARDS), call=st.sampled_from(["commit", "start"]))
    def fail(self, app, card, call):
        self.port.fail[call] = Unavailable("not now")
        before = self.port.state.rows
        answer = self.do("resume", app, [Pick(card.node, card.id, 3000 * MIB)])
        if isinstance(answer, Unavailable) and call == "commit":
            assert self.port.state.rows == before
        self.port.fail.clear()

    @rule()
    def settle(self):
        self.port.ended()
        asyncio.run(Bindings(self.port).remove_drained())
        assert not any(row.draining for row in self.port.state.rows)

    @invariant()
    def cards_are_not_promised_twice(self):
        assert overfull(asyncio.run(Bindings(self.port).snapshot_now()).view) == []

    @invariant()
    def nobody_runs_by_a_row_that_is_not_there(self):
        assert self.port.held <= {row.id for row in self.port.state.rows}

    @invariant()
    def ids_are_unique(self):
        ids = [row.id for row in self.port.state.rows]
        assert len(ids) == len(set(ids))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=25)
