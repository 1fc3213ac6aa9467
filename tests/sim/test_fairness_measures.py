"""Measures of fairness against their definitions, and on cases computed by hand."""

import random

import pytest

from ullage.sim.fairness import FairnessJob, WaitingQueues, fairness_of, finish_time_rho, jain, mean_jct


def slow_rho(jobs):
    """The definition, by the sum of how long each job shared the cluster with each other one."""
    found = []
    for job in jobs:
        present = job.finish_s - job.arrival_s
        together = sum(max(0.0, min(job.finish_s, o.finish_s) - max(job.arrival_s, o.arrival_s)) for o in jobs)
        found.append(present / (job.duration_s * max(1.0, job.share * together / present)))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_rho_is_its_definition(seed):
    draw = random.Random(seed)
    jobs = []
    for _ in range(50):
        arrival, duration = draw.uniform(0, 100), draw.uniform(1, 20)
        jobs.append(
            FairnessJob(arrival, duration, arrival + duration + draw.choice((0, draw.uniform(0, 50))), draw.random())
        )
    assert finish_time_rho(jobs).tolist() == pytest.approx(slow_rho(jobs))


def test_rho_of_jobs_done_by_hand():
    alone = FairnessJob(0, 10, 10, 1.0)
    assert finish_time_rho([alone]).tolist() == [1.0]
    # Two jobs that each need everything: on half of it each would take 20 s.
    first, second = FairnessJob(0, 10, 10, 1.0), FairnessJob(0, 10, 20, 1.0)
    assert finish_time_rho([first, second]).tolist() == pytest.approx([10 / 20, 20 / (10 * 1.5)])
    # Small jobs lose nothing on a part of the cluster: each second of waiting is unfair.
    assert finish_time_rho([FairnessJob(0, 10, 10, 0.1), FairnessJob(0, 10, 15, 0.1)]).tolist() == pytest.approx(
        [1.0, 1.5]
    )
    assert finish_time_rho([FairnessJob(0, 0, 0, 0.5)]).tolist() == [1.0]


def test_jains_index():
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0, 0.0]) == 1.0


def test_queues_count_by_the_time_in_which_two_or_more_wait():
    queues = WaitingQueues()
    queues.add(100.0, [0.9])
    queues.add(30.0, [0.4, 0.4])
    queues.add(10.0, [0.6, 0.0])
    assert queues.jain == pytest.approx((30 * 1.0 + 10 * 0.5) / 40)
    assert queues.gap == pytest.approx(10 * 0.6 / 40)


def test_everything_is_fair_where_nothing_happened():
    fair = fairness_of([], WaitingQueues())
    assert (fair.worst_rho, fair.p90_rho, fair.mean_rho, fair.unfair) == (1.0, 1.0, 1.0, 0.0)
    assert (fair.jain, fair.gap, mean_jct([])) == (1.0, 0.0, 0.0)


def test_unfair_is_the_part_of_jobs_that_lost():
    jobs = [FairnessJob(0, 10, 10, 0.1), FairnessJob(0, 10, 15, 0.1)]
    fair = fairness_of(jobs, WaitingQueues())
    assert (fair.worst_rho, fair.p90_rho, fair.mean_rho, fair.unfair) == pytest.approx((1.5, 1.45, 1.25, 0.5))
    assert mean_jct(jobs) == 12.5
