"""A sentence on a waiting pod is made once for one cause."""

from tests.clock import Clock
from ullage.kube.events import AGAIN_S
from ullage.kube.extender.explained import Explained


def test_a_sentence_is_made_again_for_another_cause_after_a_while_and_after_the_pod_was_placed():
    clock, made = Clock(), []
    explained = Explained(clock)

    def explain():
        made.append(len(made))
        return f"sentence {len(made)}"

    assert [explained.of("u", "one", explain) for _ in range(3)] == ["sentence 1"] * 3
    assert explained.of("u", "other", explain) == "sentence 2"
    clock.now += AGAIN_S
    assert explained.of("u", "other", explain) == "sentence 3"
    explained.forget("u")
    assert explained.of("u", "other", explain) == "sentence 4"
