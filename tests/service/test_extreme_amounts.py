"""Amounts that no machine has, in any mix: refused or waiting, and never more than that, also after a restart."""

from __future__ import annotations

import pytest
from tests.core.zones import kubelet, machine
from tests.lab import Machine

from ullage.core.placing.decision import Refusal
from ullage.model.claim import Request
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.rejection import Code
from ullage.model.request import MAX_CARDS, ResourceRequirement

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("alignment", ["", ",numa=none", ",numa=best-effort", ",numa=single-numa-node"])
@pytest.mark.parametrize(
    "amounts",
    [
        f"gpu=1,cpu={MAX_INT32 + 1}",
        f"gpu=1,cpu={MAX_INT64}",
        f"gpu=0.5,cpu={MAX_INT64}",
        f"gpu={MAX_INT32},cpu=1",
        f"gpu=1,mem={MAX_INT64}",
        f"cpu={MAX_INT64},mem={MAX_INT64}",
    ],
)
def test_a_request_that_no_node_can_hold_is_refused_and_evicts_nothing(tmp_path, amounts: str, alignment: str):
    asked = ResourceRequirement.from_string(amounts + alignment)
    nodes = machine("a", cpus=(8, 8)), machine("b", cpus=(8, 8), kubelet=kubelet("restricted"))
    with Machine(str(tmp_path / "state.db"), *nodes) as lab:
        if 0 < asked.gpu_count <= MAX_CARDS:
            assert isinstance(lab.service.allocations.alloc(Request("r", asked), lambda: None), Refusal)
        lab.session("s", amounts + alignment, tasks=1)
        assert lab.why("s").code is Code.TOO_LARGE
        lab.restart()
        assert lab.why("s").code is Code.TOO_LARGE
        lab.session("t", "cpu=1,gpu=1", tasks=1)
        assert lab.held("t") == 1
