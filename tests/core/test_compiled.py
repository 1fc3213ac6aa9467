"""What is kept on disk is found by a digest of all that it does."""

from ullage.core.kernel.compiled import code_of, lean

STEP = 1


def step(a):
    return a + STEP


def twice(a):
    return step(step(a))


def test_the_digest_is_that_of_what_is_called_and_read(monkeypatch):
    before = code_of(twice)
    assert before == code_of(twice)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "STEP", 2)
        assert code_of(twice) != before
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "step", lambda a: a - STEP)
        assert code_of(twice) != before
    assert code_of(twice) == before


def test_a_lean_function_has_another_digest():
    def same(a):
        return a + STEP

    before = code_of(same)
    lean(same)
    assert code_of(same) != before
