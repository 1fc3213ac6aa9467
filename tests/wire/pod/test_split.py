"""How cards are split between the containers of a pod."""

import pytest

from tests.wire.pod.pods import pod, refusal
from ullage.model.error import InvalidRequest
from ullage.wire.pod import compose_request, split_container_gpus


def test_cards_are_split_between_containers():
    request = compose_request(pod(gpu_count="3", container_gpu_count='{"c1": 2, "c2": 1}'))
    assert request.container_gpu_counts == {"c1": 2, "c2": 1}
    for text in ("{", "[1]", '{"c1": -1}', '{"c1": 1.5}', '{"c1": "2"}'):
        assert "container-gpu-count" in refusal(gpu_count="3", container_gpu_count=text)
    message = refusal(gpu_count="3", container_gpu_count='{"c1": 2}')
    assert "ullage.io/container-gpu-count" in message
    assert "the pod requests 3 cards" in message


def test_containers_take_cards_by_name():
    assert split_container_gpus({"c2": 1, "c1": 2}, ["g1", "g2", "g3"]) == {"c1": ("g1", "g2"), "c2": ("g3",)}
    assert split_container_gpus({"b": 0, "a": 1}, ["g1"]) == {"a": ("g1",), "b": ()}
    for counts in ({"c1": 2}, {"c1": 4}, {"c1": 4, "c2": -1}):
        with pytest.raises(InvalidRequest, match="add up to 3"):
            split_container_gpus(counts, ["g1", "g2", "g3"])
