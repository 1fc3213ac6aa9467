"""Whatever is sent, and whatever stands on nodes and pods: an answer within bounds, and books that add up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.kube.test_front import a_node as counted
from tests.kube.test_mirror import REGISTER, a_node, a_pod
from tests.kube.test_mirror import World as Mirrored
from tests.kube.test_unconfirmed import World
from ullage.core.books.fleet import Fleet
from ullage.kube.extender.app import make_app
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.request import ResourceRequirement

GPU = "nvidia.com/gpu"
NUMBERS = st.sampled_from(["", "0", "1", "-1", "1.5", "1e400", "9" * 30, "NaN", "1Gi", "8E", "many", "0x1", "\x00"])
TEXTS = NUMBERS | st.text(max_size=8) | st.sampled_from(["A0", "A0,A1", "A0,,A1", "A0|B0", "a", "x" * 300])
DEEP = st.sampled_from(["[" * 5_000, '{"a":' * 5_000, '{"cards":' + "[" * 3_000, '[{"id":' + "[" * 3_000])
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OURS = [
    "gpu-ids",
    "allocation",
    "index",
    "numa-placement",
    "gpu-count",
    "gpupool",
    "tflops-request",
    "vram-request",
    "compute-percent-request",
    "compute-percent-limit",
    "gpu-indices",
    "vendor",
    "gpu-model",
    "isolation",
    "qos",
    "partition-id",
    "dedicated-gpu",
    "container-gpu-count",
    "numa-policy",
    "numa-pairs",
    "gang-min-members",
    "gang-enabled",
    "workload",
    "eviction-protection",
    "gpu-bindings",
    "queue",
    "strategy",
]
KEYS = st.sampled_from(
    [
        *(f"ullage.io/{name}" for name in OURS),
        *(f"tensor-fusion.ai/{name}" for name in OURS[:9]),
        "hami.io/vgpu-devices-allocated",
        "nvidia.com/use-gpuuuid",
        "hami.io/gpu-scheduler-policy",
        "volcano.sh/numa-topology-policy",
        "volcano.sh/topology-decision",
        "nvidia.com/vgpu-mode",
    ]
)
RECORDS = st.builds(json.dumps, JSONS) | st.builds(
    lambda cards, times: json.dumps({"cards": cards, **times}),
    st.lists(
        st.fixed_dictionaries(
            {
                "compute": st.integers(-1, 2**63),
                "vram": st.integers(-1, 2**63),
                "isolation": st.sampled_from(["soft", "hard", "partitioned", "x"]),
            },
            optional={
                "template": st.sampled_from(["1g.5gb", "x"]),
                "start": st.integers(-1, 9),
                "end": st.integers(-1, 2**40),
                "group": st.integers(0, 3),
            },
        ),
        max_size=3,
    ),
    st.fixed_dictionaries({}, optional={"assumed_at": st.floats(), "bound_at": st.floats()}),
)
PLACEMENTS = st.builds(
    json.dumps,
    st.fixed_dictionaries(
        {},
        optional={
            "cpus": st.sampled_from(["0-3", "0-999999999", "5,1", "x"]),
            "zones": st.lists(st.integers(-1, 70), max_size=3),
            "devices": st.dictionaries(st.sampled_from(["gpu", "nic"]), st.lists(TEXTS, max_size=2), max_size=2),
            "memory": st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2**63)), max_size=2),
            "amounts": st.lists(st.tuples(st.integers(0, 9), TEXTS, st.integers(0, 2**63)), max_size=2),
            "rank": st.sampled_from(["observed", "bound", "x"]),
        },
    ),
)
NOTES = st.dictionaries(KEYS, TEXTS | RECORDS | PLACEMENTS | DEEP, max_size=4)
LIMITS = st.dictionaries(
    st.sampled_from(
        [GPU, "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/priority", "cpu", "memory", "amd.com/gpu"]
    ),
    NUMBERS,
    max_size=3,
)


@st.composite
def pods(draw: st.DrawFn, name: str = "p") -> dict[str, Any]:
    """A pod as an API server may have it: its own fields are of the right types, all else is anything."""
    pod = a_pod(
        name, draw(st.sampled_from(["a", "b", "none", ""])), *draw(st.sampled_from([(), ("A0",), ("A0", "B0")]))
    )
    pod["metadata"]["annotations"] |= draw(NOTES)
    pod["metadata"]["labels"] = draw(st.dictionaries(KEYS, TEXTS, max_size=2))
    pod["spec"]["containers"] = [
        {"name": f"c{at}", "resources": {"limits": draw(LIMITS), "requests": draw(LIMITS)}}
        for at in range(draw(st.integers(1, 2)))
    ]
    if draw(st.booleans()):
        pod["spec"]["priority"] = draw(st.integers(-(2**31), 2**31 - 1))
    pod["status"]["phase"] = draw(st.sampled_from(["Pending", "Running", "Running", "Failed"]))
    if draw(st.integers(0, 4)) == 0:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["a", "b"]))
    node = a_node(name, *draw(st.lists(st.sampled_from(["A0", "A1", "B0", "X"]), max_size=4)))
    notes = node["metadata"]["annotations"]
    match draw(st.integers(0, 3)):
        case 0:
            notes[REGISTER] = draw(TEXTS | DEEP | st.builds(json.dumps, JSONS))
        case 1:
            cards = json.loads(notes[REGISTER])
            for card in cards:
                card.update(draw(st.dictionaries(st.sampled_from(sorted(card)), JSONS, max_size=2)))
            notes[REGISTER] = json.dumps(cards)
        case 2:
            cards = json.loads(notes[REGISTER])
            kind = draw(st.sampled_from([{"mode": "mig"}, {}]))
            notes[REGISTER] = json.dumps([card | {"type": "NVIDIA A100-SXM4-40GB", **kind} for card in cards])
    notes |= draw(st.dictionaries(st.sampled_from(["hami.io/device-cordon", "hami.io/node-handshake"]), TEXTS | DEEP))
    node["status"]["allocatable"] = draw(LIMITS)
    return node


ASKED = [
    ResourceRequirement.from_string(f"gpu=1{more}") for more in ("", ",vram=4g", ",percent=30", ",partition=1g.5gb")
]


def check(world: Mirrored) -> None:
    """The columns are inventory minus ledger and other usage; no pod gets a card that another pod names."""
    world.mirror.settle()
    fleet = world.cluster.allocator.fleet
    again = Fleet(fleet.nodes, fleet.ledger.values())
    for node, has in fleet.other_usage.items():
        again.set_other_usage(node, has)
    assert fleet.ledger == again.ledger
    assert (fleet.card_rows[:, :4] == again.card_rows[:, :4]).all()
    assert (fleet.node_rows[:, :7] == again.node_rows[:, :7]).all()
    assert (fleet.vram_free <= fleet.vram_total).all()
    assert (fleet.compute_free <= fleet.compute_total).all()
    for asked in ASKED:
        request = Request("asks", asked, Claim())
        for node in world.cluster.offers(request, ["a", "b", "none"]).names:
            found = world.cluster.reserve(request, node)
            assert isinstance(found, Allocation)
            alone = not found.charges
            for card in (fleet.card_of[uuid] for uuid in found.gpus):
                assert not alone or set(fleet.holders[card]) == {"asks"}
                assert min(fleet.compute_free[card], fleet.vram_free[card]) >= 0
            world.cluster.undo("asks")


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(nodes(), pods("p"), pods("q"), pods("r")), min_size=1, max_size=8), st.integers(0, 8))
def test_the_books_follow_whatever_stands_on_nodes_and_pods(reported: list[dict[str, Any]], restart: int):
    world = Mirrored(a_node("a", "A0", "A1"))
    for at, item in enumerate(reported):
        (world.pods if "containers" in item["spec"] else world.nodes).put(item)
        check(world)
        if at == restart:
            world.begin()
            check(world)
    world.begin()
    check(world)
    for namespace, name in list(world.pods.objects):
        world.pods.drop(name, namespace)
    check(world)
    assert not world.cluster.allocator.fleet.ledger


@pytest.fixture(scope="module")
def extender() -> TestClient:
    world = World()
    for name in ("a", "b"):
        world.server.rules.create("nodes", "", counted(name, 2))
    process = asyncio.run(world.leader())
    return TestClient(make_app(process.extender))


ARGS = st.fixed_dictionaries(
    {},
    optional={
        "Pod": pods() | JSONS,
        "NodeNames": st.lists(TEXTS, max_size=4) | JSONS,
        "Nodes": st.fixed_dictionaries({"items": st.lists(st.fixed_dictionaries({"metadata": JSONS}), max_size=2)})
        | JSONS,
        "NodeNameToMetaVictims": st.dictionaries(
            st.sampled_from(["a", "b", "x"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "Pods": st.lists(st.fixed_dictionaries({"UID": TEXTS}), max_size=2),
                    "NumPDBViolations": JSONS,
                },
            )
            | JSONS,
            max_size=2,
        )
        | JSONS,
        "NodeNameToVictims": JSONS,
        "PodName": TEXTS | JSONS,
        "PodNamespace": TEXTS | JSONS,
        "PodUID": TEXTS | JSONS,
        "Node": TEXTS | JSONS,
    },
)


@settings(
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.sampled_from(["filter", "prioritize", "preempt", "bind"]), ARGS | JSONS)
def test_every_question_is_answered(extender: TestClient, verb: str, args: Any):
    reported = extender.post(f"/{verb}", content=json.dumps(args))
    assert reported.status_code == 200, reported.text
    answer = reported.json()
    if verb == "prioritize":
        assert all(0 <= each["Score"] <= 10 for each in answer)
    if verb == "filter" and isinstance(args, dict) and not answer["Error"]:
        assert set(answer["NodeNames"] or ()) <= set(args.get("NodeNames") or ())


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"Pod":' * 50_000, b"\xff\xfe", b"{" + b'"a":1,' * 100_000 + b'"b":2}', b"0" * 9_000_000]
)
def test_bodies_that_are_too_much_are_refused_in_words(extender: TestClient, verb: str, body: bytes):
    reported = extender.post(f"/{verb}", content=body)
    assert reported.status_code == 200
