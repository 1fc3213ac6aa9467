"""Pods with HAMi's resources and annotations."""

from msgspec import structs

from ullage.wire.hami.request import read_hami
from ullage.wire.vendors.load import load_vendor
from ullage.wire.vendors.registers import NodeText, registered_cards
from ullage.wire.vendors.shipped import NVIDIA

GPU, MEMORY, PERCENT, CORES, PRIORITY = (
    f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
)
MIB = 2**20


def limits(gpu=None, mem=None, percent=None, cores=None, priority=None, kind="limits", **more):
    reported = {GPU: gpu, MEMORY: mem, PERCENT: percent, CORES: cores, PRIORITY: priority, **more}
    return {"resources": {kind: {name: value for name, value in reported.items() if value is not None}}}


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


def nvidia(**sections):
    """NVIDIA with other values in some sections: `memory={"unit_mib": 10}`."""
    changed = {name: structs.replace(getattr(NVIDIA, name), **values) for name, values in sections.items()}
    return structs.replace(NVIDIA, **changed)


ACME = load_vendor(
    """
vendor = "Acme"

[[family]]
name = "Acme"
word = "ACME"
parts = "soft"
count = { default = 1 }
cores = { of_whole = 100 }
annotations = { use_type = "acme.com/use-gputype", use_uuid = ["acme.com/use-gpuuuid"] }
register = { format = "hami", annotation = "hami.io/node-acme-register" }
results = { allocated = "hami.io/acme-devices-allocated" }

[family.resources]
count = "acme.com/card"
memory = "acme.com/mem"
percent = "acme.com/mem-pc"
cores = "acme.com/cores"
priority = "acme.com/prio"
""",
    "acme.toml",
).family[0]


def read_register(text, family=NVIDIA):
    """The cards in a register of NVIDIA's agent."""
    return registered_cards(family, NodeText("n", {family.register.annotation: text}))
