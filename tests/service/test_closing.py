"""Sessions that end by themselves."""

from tests.lab import Lab, a_node


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
