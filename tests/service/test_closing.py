"""Sessions that end by themselves."""

import pytest
from tests.lab import Lab, a_node

from ullage.model.error import Conflict


def test_a_session_that_closes_when_done_closes_after_its_last_task_and_not_before():
    with Lab(a_node(cpu=2)) as lab:
        record = lab.session("s", close_when_done=True)
        assert record.open
        lab.submit("s", 2)
        lab.finish("s")
        assert record.open
        lab.finish("s")
        lab.pass_time(0)
        assert not record.open
        assert lab.counts("s")["succeed"] == 2


def test_a_session_that_is_being_cancelled_is_not_told_to_be_closed_before_it_is_deleted():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", tasks=2)
        with pytest.raises(Conflict, match="session s is open; close it before deleting it"):
            lab.service.sessions.delete("s", lambda: None)
        lab.service.sessions.cancel("s", lambda: None)
        with pytest.raises(Conflict, match="session s ends: 2 tasks left; try again") as refused:
            lab.service.sessions.delete("s", lambda: None)
        assert refused.value.code == "session-open"
        lab.pump()
        lab.service.sessions.delete("s", lambda: None)
        assert "s" not in lab.service.state.sessions
