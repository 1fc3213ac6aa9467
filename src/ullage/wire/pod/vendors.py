"""Vendors of cards, and the names of their resources in Kubernetes."""

from __future__ import annotations

from ullage.model.topology import CARD

VENDORS = (
    *("NVIDIA", "AMD", "Intel", "Qualcomm", "AWSNeuron", "Google", "Cerebras", "Hygon", "MetaX", "MooreThreads"),
    *("Biren", "THead", "PPU", "Ascend", "Cambricon", "Enflame", "KunlunXin", "Horizon"),
)
"""Vendors that a pod may name, in any case."""

LIMITER_VENDORS = frozenset({"NVIDIA", "Ascend", "MooreThreads", "PPU"})
"""Vendors with a limiter, which isolates parts softly."""

NATIVE_RESOURCES = {
    "nvidia.com/gpu": "NVIDIA",
    "amd.com/gpu": "AMD",
    "gpu.intel.com/i915": "Intel",
    "gpu.intel.com/xe": "Intel",
    "hygon.com/dcu": "Hygon",
    "metax-tech.com/gpu": "MetaX",
    "mthreads.com/gpu": "MooreThreads",
    "birentech.com/gpu": "Biren",
    "aliyun.com/ppu": "PPU",
    "huawei.com/Ascend310": "Ascend",
    "huawei.com/Ascend310P": "Ascend",
    "huawei.com/Ascend910": "Ascend",
    "cambricon.com/mlu": "Cambricon",
    "enflame.com/gcu": "Enflame",
    "kunlunxin.com/xpu": "KunlunXin",
}
"""Resources under which the vendors' own device plugins offer whole cards."""


def as_resource(name: str) -> str:
    """Return our name of a Kubernetes resource: the cards of every vendor have the same name."""
    return CARD if name in NATIVE_RESOURCES else name
