"""Pods with HAMi's resources and annotations."""

from ullage.wire.hami.request import read_hami

GPU, MEMORY, PERCENT, CORES, PRIORITY = (
    f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
)
MIB = 2**20


def limits(gpu=None, mem=None, percent=None, cores=None, priority=None, kind="limits", **more):
    told = {GPU: gpu, MEMORY: mem, PERCENT: percent, CORES: cores, PRIORITY: priority, **more}
    return {"resources": {kind: {name: value for name, value in told.items() if value is not None}}}


def pod(*containers, init=(), annotations=None, spec=None):
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1", "annotations": annotations or {}},
        "spec": {
            "initContainers": [{"name": f"i{number}", **given} for number, given in enumerate(init)],
            "containers": [{"name": f"c{number}", **given} for number, given in enumerate(containers)],
            **(spec or {}),
        },
    }


def asked_by(*containers, **more):
    return read_hami(pod(*containers, **more)).requirement
