"""Each claim of the README is shown by tests or a benchmark, and the README stays short."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.test_examples import ROOT

README = (ROOT / "README.md").read_text()
SHOWN = {
    "Fair": (
        "tests/core/test_shares.py::test_filling_equals_the_slow_oracle",
        "tests/service/test_fair_sharing.py::test_one_busy_session_among_four_open_ones_gets_the_whole_machine",
        "tests/service/test_fair_sharing.py::test_a_late_session_of_equal_weight_gets_its_half_within_the_grace_period",
        "benchmarks/drf.py::main",
    ),
    "Tight": (
        "tests/core/test_leftover_strategy.py::test_every_decision_is_the_cheapest",
        "tests/service/test_parts_of_cards.py::test_two_halves_share_a_card",
        "tests/inventory/test_slices.py::test_each_worker_has_a_slice_of_its_own_by_its_uuid",
        "tests/core/test_alignment.py::test_memory_and_huge_pages_lie_in_the_zone_of_the_cards_and_come_back",
        "benchmarks/policies.py::main",
    ),
    "Explained": (
        "tests/service/test_nowhere.py::test_a_suggested_request_fits_where_it_is_said_to_fit",
        "tests/service/test_parts_of_cards.py::test_amounts_above_a_card_do_not_fit_and_why_names_card_and_amounts",
    ),
    "Durable": (
        "tests/system/test_crashes.py::test_kill_9_of_the_server_in_the_middle_of_1000_tasks_loses_nothing",
        "tests/system/test_kill_loop.py::test_acknowledged_records_survive_every_kill",
    ),
    "`make run` sets up `.venv` and starts in less than a minute": (
        "tests/system/test_first_start.py::test_the_first_start_on_a_machine_waits_for_no_compiler",
    ),
    "The first command that needs a server starts one": (
        "tests/docs/test_package.py::test_the_wheel_runs_a_program_with_the_extra_for_a_server",
    ),
    "it has tried what it suggests": (
        "tests/service/test_nowhere.py::test_a_suggested_request_fits_where_it_is_said_to_fit",
    ),
}
"""What shows each claim: the bold word of a point, or a part of a sentence."""


def test_every_point_of_the_readme_has_what_shows_it() -> None:
    points = set(re.findall(r"^- \*\*(\w+)\.\*\*", README, re.MULTILINE))
    assert points == {claim for claim in SHOWN if re.fullmatch(r"\w+", claim)}
    assert [claim for claim in SHOWN if claim not in README] == []


@pytest.mark.parametrize("named", sorted({each for group in SHOWN.values() for each in group}))
def test_what_shows_a_claim_is_there(named: str) -> None:
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_readme_is_short_and_has_one_picture() -> None:
    assert len(README.splitlines()) <= 100
    assert README.count("![") == 1
    (commands,) = (text for text in re.findall(r"```console\n(.*?)```", README, re.DOTALL) if "make run" in text)
    assert len(commands.splitlines()) == 2
