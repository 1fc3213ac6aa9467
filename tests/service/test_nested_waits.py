"""Tasks that wait for tasks of their own session, or of another one, while nothing runs these."""

from __future__ import annotations

from tests.lab import Lab, a_node
from tests.service.answers import SERVER

from ullage.server.answers import Answers
from ullage.service.nested_waits import awaited


def why(lab: Lab, session: str) -> list[str]:
    return [text for text in Answers(lab.service, SERVER, {}).explanation(session, None)().warnings if "waits" in text]


def executors(lab: Lab, session: str) -> list[str]:
    return sorted(lab.service.state.session(session).executors)


def test_a_session_whose_tasks_hold_all_executors_and_wait_for_its_own_is_told_so() -> None:
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", owner="ann", tasks=5)
        first, second = executors(lab, "s")
        with awaited(lab.service.state, first, "s"):
            assert why(lab, "s") == []  # the other executor runs the next one
            with awaited(lab.service.state, second, "s"), awaited(lab.service.state, second, "s"):
                (text,) = why(lab, "s")
                assert text.startswith(
                    "2 executors of s run a task that waits for tasks of the same session, and nothing runs these: "
                    "each task holds its executor while it waits. With fewer at once (max_instances, "
                    "`ullage update s --at-once N`) there is room"
                )
                (body,) = Answers(lab.service, SERVER, {}).sessions(lab.service.state.sessions.values())()
                assert body.awaiting == 2
        assert why(lab, "s") == []
        assert not any(lab.service.state.executors[each].awaits for each in (first, second))


def test_a_session_whose_tasks_wait_for_another_one_without_an_executor_is_told_its_name() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("outer", owner="ann", tasks=1)
        lab.session("inner", owner="ann", tasks=3)
        (holder,) = executors(lab, "outer")
        with awaited(lab.service.state, holder, "inner"):
            (text,) = why(lab, "outer")
            assert text.startswith("1 executor of outer runs a task that waits for tasks of session inner, and nothing")
            lab.service.sessions.cancel("inner", lambda: None)
            lab.pump()
            assert why(lab, "outer") == []


def test_a_session_that_runs_what_is_waited_for_is_fine() -> None:
    with Lab(a_node(cpu=2)) as lab:
        lab.session("outer", owner="ann", tasks=1)
        lab.session("inner", owner="ann", tasks=3)
        (holder,), (runs,) = executors(lab, "outer"), executors(lab, "inner")
        with awaited(lab.service.state, holder, "inner"):
            assert why(lab, "outer") == []
            starting = lab.service.state.executors[runs]
            tasks, starting.tasks = starting.tasks, {}
            assert why(lab, "outer") == []  # an executor without a task is about to get one
            starting.tasks = tasks
            lab.session("innermost", owner="ann", tasks=1)
            with awaited(lab.service.state, runs, "innermost"):  # a chain, whose end has no room
                assert len(why(lab, "outer")) == len(why(lab, "inner")) == 1


def test_nobody_says_it_of_the_sessions_of_others() -> None:
    with Lab(a_node(cpu=1)) as lab:
        lab.session("outer", owner="ann", tasks=1)
        lab.session("inner", owner="bob", tasks=1)
        (holder,) = executors(lab, "outer")
        for executor in (holder, "nobody", None):
            with awaited(lab.service.state, executor, "inner"), awaited(lab.service.state, executor, "no-session"):
                assert why(lab, "outer") == []
