"""What is drawn of past durations: longer than what has lasted, as often as it was, within the limit."""

from __future__ import annotations

import random
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.service.durations import Durations, PastGroup, TaskTimes, Urns

SECONDS = st.floats(0.001, 1e6)
DRAWS = 1000


def singles(*seconds: float) -> list[TaskTimes]:
    return [TaskTimes((each,)) for each in seconds]


def left(durations: Durations, lasted_s: float, seed: int) -> float:
    rng = random.Random(seed)
    kind = durations.draw(rng, Urns(rng), lasted_s)
    assert kind is not None
    return durations.left_s(rng, kind, lasted_s)


@given(st.lists(SECONDS, min_size=1, max_size=20), st.lists(SECONDS, max_size=5), SECONDS, SECONDS, st.integers(0, 99))
def test_a_task_has_time_left_and_ends_by_its_limit(
    ended: list[float], running: list[float], lasted_s: float, limit_s: float, seed: int
) -> None:
    groups = (PastGroup(singles(*ended), singles(*running)),)
    assert left(Durations(PastGroup(()), groups), lasted_s, seed) > 0 or lasted_s > 1e5
    limited = left(Durations(PastGroup(()), groups, limit_s), lasted_s, seed)
    assert 0 <= limited <= max(0.0, limit_s - lasted_s)


def test_only_tasks_that_took_longer_count_for_one_that_runs() -> None:
    durations = Durations(PastGroup(()), (PastGroup(singles(*[10.0] * 50, *[1000.0] * 50)),))
    assert median(left(durations, 0.0, seed) for seed in range(DRAWS)) in (10.0, 1000.0)
    late = [left(durations, 100.0, seed) for seed in range(DRAWS)]
    assert sum(each == 900.0 for each in late) / DRAWS == pytest.approx(50 / 51, abs=0.02)


def test_tasks_that_have_not_ended_count_as_longer() -> None:
    rng = random.Random(0)
    true = [rng.expovariate(1 / 1000) for _ in range(400)]
    begun = [rng.uniform(0, 1500) for _ in true]
    ended = [each for each, at in zip(true, begun, strict=True) if at + each <= 1500]
    running = [1500 - at for each, at in zip(true, begun, strict=True) if at + each > 1500]
    naive = mean(ended)
    durations = Durations(PastGroup(()), (PastGroup(singles(*ended), singles(*running)),))
    drawn = [left(durations, 0.0, seed) for seed in range(DRAWS)]
    assert naive < 500
    assert median(drawn) == pytest.approx(median(true), rel=0.25)


def test_few_past_sessions_say_little_and_many_say_nearly_all() -> None:
    wide = PastGroup(singles(*[7.0] * 1000))
    for count, share in ((1, 1 / 2), (4, 4 / 5), (99, 99 / 100)):
        durations = Durations(PastGroup(()), (PastGroup(singles(*[3.0] * count)), wide))
        found = [left(durations, 0.0, seed) for seed in range(DRAWS)]
        assert sum(each == 3.0 for each in found) / DRAWS == pytest.approx(share, abs=0.05)


def test_what_is_drawn_in_a_future_is_drawn_again_in_it() -> None:
    group = PastGroup(singles(*map(float, range(1, 6))))
    spread = []
    for seed in range(300):
        rng = random.Random(seed)
        urns = Urns(rng)
        spread.append(mean((urns.draw((group,), 0.0) or TaskTimes((3.0,))).seconds[0] for _ in range(200)))
    assert max(spread) - min(spread) > 1.0, "futures differ in the mean, which five past tasks do not tell"


def test_without_a_past_each_time_up_to_the_limit_is_as_likely() -> None:
    found = [left(Durations(PastGroup(()), (), 100.0), 40.0, seed) for seed in range(DRAWS)]
    assert mean(found) == pytest.approx(30, abs=2)
    assert Durations(PastGroup(()), ()).draw(random.Random(0), Urns(random.Random(0))) is None


def test_a_task_that_lasts_longer_than_all_others_lasts_as_long_again_in_half_of_the_futures() -> None:
    found = [left(Durations(PastGroup(()), (PastGroup(singles(5.0)),)), 100.0, seed) for seed in range(DRAWS)]
    assert median(found) == pytest.approx(100, rel=0.15)


def test_own_tasks_of_a_session_count_most() -> None:
    durations = Durations(PastGroup(singles(*[3.0] * 9)), (PastGroup(singles(*[7.0] * 1000)),))
    found = [left(durations, 0.0, seed) for seed in range(DRAWS)]
    assert sum(each == 3.0 for each in found) / DRAWS == pytest.approx(9 / 10, abs=0.03)
