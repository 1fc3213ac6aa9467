"""The use of cards over the last hour."""

from __future__ import annotations

import pytest

from tests.lab import Lab, a_node
from tests.service.answers import SERVER
from tests.system.live_server import LiveServer, wait_until
from ullage.model.card_load import CardLoad
from ullage.server.answers import Answers
from ullage.service.card_use import SPAN_S, STEP_S


def test_what_is_held_and_what_a_driver_measures_are_kept_apart():
    with Lab(a_node(gpus=2)) as lab:
        use, fleet = lab.service.card_use, lab.service.state.fleet
        use.add(1000.0, fleet, [])
        lab.session("half", "gpu=0.5", tasks=1)
        use.add(1010.0, fleet, [CardLoad("GPU-n1-0", 40, 7), CardLoad("GPU-n1-1", None, 3)])
        body = Answers(lab.service, SERVER, {}).card_use()()
        first, second = body.cards
        assert body.at == [1000.0, 1010.0]
        assert sorted((first.held, second.held)) == [[0.0, 0.0], [0.0, 0.5]]
        assert (first.compute, first.memory_bytes, first.measured) == ([None, 0.4], [None, 7], True)
        assert (second.compute, second.memory_bytes, second.measured) == ([None, None], [None, 3], True)


def test_an_hour_is_kept_with_a_sample_at_each_step():
    with Lab(a_node(gpus=1)) as lab:
        use, fleet = lab.service.card_use, lab.service.state.fleet
        assert use.is_due(0.0)
        for number in range(1000):
            use.add(number * STEP_S, fleet, [])
        assert not use.is_due(999 * STEP_S + STEP_S / 2)
        assert use.is_due(1000 * STEP_S)
        times = [sample.at for sample in use.samples]
        assert times[-1] - times[0] == pytest.approx(SPAN_S, abs=STEP_S)


def test_a_server_samples_its_declared_cards_and_measures_none(server: LiveServer):
    with server.client() as client:
        wait_until(lambda: client.get("/v1/load").json()["at"] != [], "the first sample")
        body = client.get("/v1/load").json()
    assert [card["held"][0] for card in body["cards"]] == [0.0] * 4
    assert not any(card["measured"] or any(card["compute"]) for card in body["cards"])
