"""New pods with cards of each vendor: what the webhook writes for its device plugin, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.test_webhook import a_pod, admitted, answered, refused


def container(**limits: int | str) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {key: str(value) for key, value in limits.items()}}}


ASCEND, ILUVATAR, MTHREADS = "huawei.com/Ascend910B3", "iluvatar.ai/BI-V150", "mthreads.com"


@pytest.mark.parametrize(
    ("limits", "written"),
    [
        ({ASCEND: 1, f"{ASCEND}-memory": 9000}, {ASCEND: "1", f"{ASCEND}-memory": "16384"}),
        ({ASCEND: 2}, {ASCEND: "2", f"{ASCEND}-memory": "65536"}),
        (
            {"huawei.com/Ascend910C": 1},
            {"huawei.com/Ascend910C": "2", "huawei.com/Ascend910C-memory": "65536"},
        ),
        (
            {"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 30000},
            {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "49152"},
        ),
        ({f"{ILUVATAR}-vgpu": 2}, {f"{ILUVATAR}-vgpu": "2", f"{ILUVATAR}.vCore": "200"}),
        (
            {f"{ILUVATAR}-vgpu": 1, f"{ILUVATAR}.vMem": 4},
            {f"{ILUVATAR}-vgpu": "1", f"{ILUVATAR}.vMem": "4"},
        ),
        (
            {f"{MTHREADS}/vgpu": 1},
            {f"{MTHREADS}/vgpu": "1", f"{MTHREADS}/sgpu-core": "16", f"{MTHREADS}/sgpu-memory": "96"},
        ),
        (
            {f"{MTHREADS}/vgpu": 2, f"{MTHREADS}/sgpu-memory": 8},
            {f"{MTHREADS}/vgpu": "2", f"{MTHREADS}/sgpu-core": "32", f"{MTHREADS}/sgpu-memory": "192"},
        ),
        (
            {f"{MTHREADS}/vgpu": 1, f"{MTHREADS}/sgpu-memory": 8},
            {f"{MTHREADS}/vgpu": "1", f"{MTHREADS}/sgpu-memory": "8"},
        ),
        ({"enflame.com/gcu-memory": 6}, {"enflame.com/gcu-memory": "6"}),
        ({"aws.amazon.com/neuroncore": 1}, {"aws.amazon.com/neuroncore": "1"}),
        ({"metax-tech.com/sgpu": 1}, {"metax-tech.com/sgpu": "1"}),
    ],
)
def test_amounts_are_written_as_they_are_read_and_once(limits: dict[str, int | str], written: dict[str, str]) -> None:
    pod = a_pod(containers=[container(**limits)])
    found = admitted(pod)
    assert found["spec"]["containers"][0]["resources"]["limits"] == written
    assert admitted(found) == found


def test_what_each_of_two_vendors_needs_is_written() -> None:
    limits = {f"{ILUVATAR}-vgpu": 2, f"{MTHREADS}/vgpu": 2, f"{MTHREADS}/sgpu-memory": 8}
    pod = a_pod(containers=[container(**limits), container(**{ASCEND: 1, f"{ASCEND}-memory": 9000}) | {"name": "d"}])
    found = admitted(pod)
    first, second = found["spec"]["containers"]
    assert first["resources"]["limits"] == {
        f"{ILUVATAR}-vgpu": "2",
        f"{ILUVATAR}.vCore": "200",
        f"{MTHREADS}/vgpu": "2",
        f"{MTHREADS}/sgpu-core": "32",
        f"{MTHREADS}/sgpu-memory": "192",
    }
    assert first["env"] == [{"name": "SOL_CONTINER_NAME", "value": "c"}]
    assert second["resources"]["limits"] == {ASCEND: "1", f"{ASCEND}-memory": "16384"}
    assert "env" not in second
    assert found["metadata"]["annotations"]["mthreads.com/request-gpu-num"] == "2"
    assert admitted(found) == found


def test_environment_and_annotations_of_a_vendor() -> None:
    found = admitted(a_pod(containers=[container(**{f"{ILUVATAR}-vgpu": 1})]))
    assert found["spec"]["containers"][0]["env"] == [{"name": "SOL_CONTINER_NAME", "value": "c"}]
    found = admitted(a_pod(containers=[container(**{f"{MTHREADS}/vgpu": 2})]))
    assert found["metadata"]["annotations"]["mthreads.com/request-gpu-num"] == "2"
    found = admitted(a_pod(containers=[container(**{f"{MTHREADS}/vgpu": 1})]))
    assert "mthreads.com/request-gpu-num" not in found["metadata"].get("annotations", {})
    found = admitted(a_pod(containers=[container(**{"metax-tech.com/sgpu": 1})]))
    assert found["metadata"]["annotations"]["metax-tech.com/sgpu-qos-policy"] == "best-effort"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({ASCEND: 2, f"{ASCEND}-memory": 9000}, "a slice is of one card"),
        ({ASCEND: 1, f"{ASCEND}-memory": 70000}, "a card has 65536 MiB"),
        ({ASCEND: 1, f"{ASCEND}-core": 20}, "huawei.com/vnpu-mode: hami-core"),
        ({"huawei.com/Ascend910C": 3}, "a multiple of 2"),
        ({"kunlunxin.com/xpu": 3}, "choose one of 1, 2, 4, 8"),
        ({"aws.amazon.com/neuroncore": 3}, "a multiple of 2"),
        ({"amd.com/gpu": 1, "amd.com/gpucores": 0}, "write 1 to 100"),
        ({"enflame.com/gcu-core": 101}, "write 1 to 100"),
        ({f"{MTHREADS}/vgpu": 1, f"{MTHREADS}/sgpu-memory": 5}, "choose one of 2, 4, 8, 16, 32, 64, 96"),
        ({"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": "4Gi"}, "write 16 for 4Gi"),
        ({"nvidia.com/mig-1g.10gb": 1, "amd.com/gpu": 1}, "slices of one profile, and no other cards"),
    ],
)
def test_what_no_device_plugin_hands_out_is_refused(limits: dict[str, int | str], why: str) -> None:
    assert why in refused(a_pod(containers=[container(**limits)]))


def test_an_amount_without_cards_has_no_effect_where_the_vendor_needs_them() -> None:
    answer = answered(a_pod(containers=[container(**{"hygon.com/dcumem": 1024})]))
    assert any("hygon.com/dcumem has no effect" in each for each in answer["warnings"])
    assert not answered(a_pod(containers=[container(**{"enflame.com/gcu-core": 10})])).get("warnings")
