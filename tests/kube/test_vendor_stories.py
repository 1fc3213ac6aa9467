"""Each vendor from the register of its node to the books of a restarted process.

What is expected is worked out by hand from the rules of HAMi's scheduler: the amounts that it gives a container, and
the annotations that it writes, byte for byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import Running, put, running
from tests.kube.vendor_nodes import Document, a_node, a_pod, card, fields, registered
from tests.kube.volcano_node import CORES, IDS, MEMORY, NUMBER, TO_ALLOCATE, volcano_node
from tests.kube.volcano_node import LOCK as VOLCANO_LOCK
from ullage.kube.client.changes import Patch
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.kube.mirror.cards import register_readers
from ullage.model.quantity import PPM
from ullage.wire.vendors.load import shipped
from ullage.wire.vendors.shipped import FAMILIES

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NOW = 1_769_860_800.0
SECONDS, NANOSECONDS = "1769860800", "1769860800000000000"
MIB = 2**20
READERS = register_readers(FAMILIES, lambda: NOW)
WHOLE = None
"""A card that is held whole has no charge."""

Held = dict[str, tuple[int, int] | None]
"""Millionths of the compute and MiB of each card."""


@dataclass(frozen=True)
class Story:
    """A node, a pod, what is written on the pod, and what it holds."""

    family: str
    node: Document
    limits: dict[str, int | str]
    written: dict[str, str]
    held: Held
    words: dict[str, str] = field(default_factory=dict)
    of_hami: Held | None = None
    """What the same pod holds that HAMi's scheduler placed, if that differs."""
    lock: str = ""
    domain: str = "hami.io"


def both(word: str, text: str) -> dict[str, str]:
    return {f"hami.io/{word}-devices-to-allocate": text, f"hami.io/{word}-devices-allocated": text}


MUTEX = "hami.io/mutex.lock"
OWNED = "2026-01-31T12:00:00Z,default,p"

STORIES = [
    Story(
        "NVIDIA",
        a_node("a", registered("hami.io/node-nvidia-register", card("GPU-1", 16000))),
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
        both("vgpu", "GPU-1,NVIDIA,3000,30:;"),
        {"GPU-1": (300_000, 3000)},
        lock=MUTEX,
    ),
    Story(
        "NVIDIA",
        a_node("a", registered("hami.io/node-nvidia-register", card("GPU-1", 16000, mode="mps"))),
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25, "nvidia.com/gpucores": 20},
        both("vgpu", "GPU-1,NVIDIA,4000,20:;"),
        {"GPU-1": (200_000, 4000)},
        words={"nvidia.com/vgpu-mode": "mps"},
        lock=MUTEX,
    ),
    Story(  # percent of 304 compute units, and the model in place of the vendor
        "AMD",
        a_node("a", registered("hami.io/node-amd-register", card("GPU-a", 196592, 304, type="MI300X-T"))),
        {"amd.com/gpu": 1, "amd.com/gpumem": 65536, "amd.com/gpucores": 50},
        both("amd", "GPU-a,MI300X-T,65536,152:;"),
        {"GPU-a": (500_000, 65536)},
        lock=MUTEX,
    ),
    Story(  # without cores all of them
        "AMD",
        a_node("a", registered("hami.io/node-amd-register", card("GPU-a", 196592, 304, type="MI300X-T"))),
        {"amd.com/gpu": 1, "amd.com/gpumem": 65536},
        both("amd", "GPU-a,MI300X-T,65536,304:;"),
        {"GPU-a": WHOLE},
        of_hami={"GPU-a": (PPM, 65536)},
        lock=MUTEX,
    ),
    Story(  # 9000 MiB are rounded up to the smallest template
        "Ascend910B3",
        a_node("a", registered("hami.io/node-register-Ascend910B3", card("N0", 65536, 20, type="Ascend910B3"))),
        {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 9000},
        both("Ascend910B3", "N0,Ascend910B3,16384,0:;")
        | {
            "predicate-time": SECONDS,
            "huawei.com/Ascend910B3": '[{"UUID":"N0","temp":"vir05_1c_16g","memory":16384}]',
        },
        {"N0": (0, 16384)},
        lock=MUTEX,
    ),
    Story(  # more than the largest template is the whole card
        "Ascend910B3",
        a_node("a", registered("hami.io/node-register-Ascend910B3", card("N0", 65536, 20, type="Ascend910B3"))),
        {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 40000},
        both("Ascend910B3", "N0,Ascend910B3,65536,0:;")
        | {"predicate-time": SECONDS, "huawei.com/Ascend910B3": '[{"UUID":"N0","memory":65536}]'},
        {"N0": WHOLE},
        lock=MUTEX,
    ),
    Story(  # in the soft mode amounts are as they are stated
        "Ascend910B3",
        a_node(
            "a",
            registered("hami.io/node-register-Ascend910B3", card("N0", 65536, 20, type="Ascend910B3"))
            | {"hami-vnpu-core": "true"},
        ),
        {
            "huawei.com/Ascend910B3": 1,
            "huawei.com/Ascend910B3-memory": 10000,
            "huawei.com/Ascend910B3-core": 30,
        },
        both("Ascend910B3", "N0,Ascend910B3,10000,30:;")
        | {
            "predicate-time": SECONDS,
            "huawei.com/Ascend910B3": '[{"UUID":"N0","memory":10000,"core":30}]',
        },
        {"N0": (300_000, 10000)},
        words={"huawei.com/vnpu-mode": "hami-core"},
        lock=MUTEX,
    ),
    *(
        Story(
            word,
            a_node("a", registered(f"hami.io/node-register-{word}", card("N0", total, cores, type=word))),
            {f"huawei.com/{word}": 1, f"huawei.com/{word}-memory": asked},
            both(word, f"N0,{word},{given},0:;")
            | {
                "predicate-time": SECONDS,
                f"huawei.com/{word}": f'[{{"UUID":"N0","temp":"{template}","memory":{given}}}]',
            },
            {"N0": (0, given)},
            lock=MUTEX,
        )
        for word, total, cores, asked, template, given in (
            ("Ascend910A", 32768, 30, 2185, "vir04", 4369),
            ("Ascend910B2", 65536, 24, 8192, "vir03_1c_8g", 8192),
            ("Ascend910B4-1", 65536, 20, 16385, "vir10_3c_32g", 32768),
            ("Ascend910B4", 32768, 20, 1, "vir05_1c_8g", 8192),
            ("Ascend310P", 21527, 8, 6145, "vir04", 12288),
        )
    ),
    Story(  # one core of two
        "AWSNeuron",
        a_node("a", **{"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"}),
        {"aws.amazon.com/neuroncore": 1},
        {
            "hami.io/aws-neuron-devices-allocated": "a-AWSNeuron-0,AWSNeuron,0,1:;",
            "AWS_NEURON_IDS": "0",
            "NEURON_ALLOC_TIME": NANOSECONDS,
            "NEURON_ALLOCATED": "false",
            "NEURON_RESOURCE_TYPE": "aws.amazon.com/neuroncore",
            "aws.amazon.com/predicate-node": "a",
        },
        {"a-AWSNeuron-0": (500_000, 0)},
    ),
    Story(
        "AWSNeuron",
        a_node("a", **{"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"}),
        {"aws.amazon.com/neuron": 1},
        {
            "hami.io/aws-neuron-devices-allocated": "a-AWSNeuron-0,AWSNeuron,0,3:;",
            "AWS_NEURON_IDS": "0",
            "NEURON_ALLOC_TIME": NANOSECONDS,
            "NEURON_ALLOCATED": "false",
            "aws.amazon.com/predicate-node": "a",
        },
        {"a-AWSNeuron-0": WHOLE},
    ),
    Story(
        "Biren",
        a_node("a", registered("hami.io/node-biren-register", card("B0", 32768))),
        {"birentech.com/gpu": 1},
        both("Biren", "B0,Biren,0,0:;"),
        {"B0": WHOLE},
        lock=MUTEX,
    ),
    Story(  # 80 units of 256 MiB are those of one card; its lock has no owner
        "Cambricon",
        a_node("a", **{"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"}),
        {"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": 4, "cambricon.com/mlu.smlu.vcore": 10},
        both("cambricon-mlu", "a-cambricon-mlu-0,MLU,1024,10:;")
        | {"CAMBRICON_DSMLU_ASSIGNED": "false", "CAMBRICON_DSMLU_PROFILE": "0_10_4"},
        {"a-cambricon-mlu-0": (100_000, 1024)},
        lock="cambricon.com/dsmlu.lock",
    ),
    Story(
        "Enflame",
        a_node("a", **{"enflame.com/gcu": "1"}),
        {"enflame.com/gcu": 1},
        both("enflame-gcu", "a-GCU-0,GCU,100,100:;"),
        {"a-GCU-0": WHOLE},
    ),
    Story(
        "Hygon",
        a_node("a", fields("hami.io/node-dcu-register", card("D0", 65520))),
        {"hygon.com/dcunum": 1, "hygon.com/dcumem": 4096, "hygon.com/dcucores": 60},
        both("dcu", "D0,DCU,4096,60:;"),
        {"D0": (600_000, 4096)},
        lock=MUTEX,
    ),
    *(
        Story(  # 64 units of 256 MiB
            word,
            a_node("a", fields(f"hami.io/node-{word}-register", card("I0", 32768, type=word))),
            {f"iluvatar.ai/{word}-vgpu": 1, f"iluvatar.ai/{word}.vMem": 64, f"iluvatar.ai/{word}.vCore": 50},
            both(word, f"I0,{word},16384,50:;"),
            {"I0": (500_000, 16384)},
            lock=MUTEX,
        )
        for word in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")
    ),
    Story(
        "KunlunXin",
        a_node("a", **{"kunlunxin.com/xpu": "1"}),
        {"kunlunxin.com/xpu": 1},
        {"hami.io/kunlun-allocated": "a-kunlun-0,kunlun,98304,100:;", "BAIDU_COM_DEVICE_IDX": "0"},
        {"a-kunlun-0": WHOLE},
    ),
    Story(  # a quarter of the card is the smallest slice, and has a quarter of its cores
        "KunlunXin-vXPU",
        a_node("a", registered("hami.io/node-register-xpu", card("X0", 98304, type="XPU"))),
        {"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": 10000},
        both("xpu", "X0,XPU,24576,25:;"),
        {"X0": (250_000, 24576)},
        lock=MUTEX,
    ),
    Story(
        "MetaX",
        a_node("a", **{"metax-tech.com/gpu": "1"}),
        {"metax-tech.com/gpu": 1},
        both("metax-gpu", "a-metax-0,Metax-GPU,65536,100:;"),
        {"a-metax-0": WHOLE},
    ),
    Story(  # a bare number is GiB
        "MetaX-sGPU",
        a_node(
            "a",
            {
                "metax-tech.com/node-gpu-devices": json.dumps(
                    [{"uuid": "M0", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536, "healthy": True}]
                )
            },
        ),
        {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4, "metax-tech.com/vcore": 60},
        both("metax-sgpu", "M0,Metax-SGPU,4096,60:;")
        | {
            "metax-tech.com/gpu-devices-allocated": '[[{"uuid":"M0","compute":60,"vRam":4096}]]',
            "metax-tech.com/predicate-time": NANOSECONDS,
        },
        {"M0": (600_000, 4096)},
        lock=MUTEX,
    ),
    Story(  # 8 units of 512 MiB, 4 of 16 cores
        "MooreThreads",
        a_node("a", **{"mthreads.com/sgpu-core": "16", "mthreads.com/sgpu-memory": "96"}),
        {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 8, "mthreads.com/sgpu-core": 4},
        {
            "hami.io/mthreads-vgpu-devices-allocated": "a-mthreads-0,Mthreads,4096,4:;",
            "mthreads.com/gpu-index": "0",
            "mthreads.com/predicate-time": NANOSECONDS,
            "mthreads.com/predicate-node": "a",
        },
        {"a-mthreads-0": (250_000, 4096)},
    ),
    Story(
        "Vastai",
        a_node("a", registered("hami.io/node-va-register", card("V0", 32768))),
        {"vastaitech.com/va": 1},
        both("Vastai", "V0,Vastai,0,0:;"),
        {"V0": WHOLE},
        lock=MUTEX,
    ),
    *(
        Story(
            "Volcano vGPU",
            volcano_node("a", "GPU-1"),
            {NUMBER: 1} | limits,
            dict.fromkeys((IDS, TO_ALLOCATE), f"GPU-1,NVIDIA,{mib},{cores}:"),
            {"GPU-1": held},
            of_hami={"GPU-1": of_hami},
            lock=VOLCANO_LOCK,
            domain="volcano.sh",
        )
        for limits, mib, cores, held, of_hami in (
            ({MEMORY: 3000, CORES: 30}, 3000, 30, (300_000, 3000), (300_000, 3000)),
            ({"volcano.sh/vgpu-memory-percentage": 25}, 4000, 0, (0, 4000), (0, 4000)),
            ({}, 16000, 0, WHOLE, (0, 16000)),
            ({CORES: 100}, 16000, 100, WHOLE, (PPM, 16000)),
        )
    ),
]

every_story = pytest.mark.parametrize(
    "story", STORIES, ids=lambda each: f"{each.family} {' '.join(map(str, each.limits.values()))}"
)


def ours(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith("ullage.io/")}


def pod_of(server: ApiServer, name: str = "p") -> Document:
    return server.do(lambda: server.rules.get(("pods", "default", name)))


def held_by(up: Running, uid: str) -> Held:
    found = up.front.cluster.held_by_family(uid)
    assert found
    whole = dict.fromkeys((gpu for each in found for gpu in each.gpus), WHOLE)
    return whole | {
        gpu: (charge.compute, charge.vram // MIB) if charge.vram else (charge.compute, 0)
        for each in found
        for gpu, charge in zip(each.gpus, each.charges, strict=False)
    }


def filled(up: Running, held: Held) -> Held:
    """The same with cards that are held whole as all that they have."""
    cards = {gpu.uuid: gpu for gpu in up.front.cluster.allocator.fleet.cards}
    whole = {uuid: (PPM, (cards[uuid].vram_bytes or 0) // MIB) for uuid in held}
    return {uuid: whole[uuid] if each is WHOLE else each for uuid, each in held.items()}


@every_story
async def test_a_pod_is_placed_as_hamis_scheduler_writes_it(server: ApiServer, api: HttpKubeApi, story: Story) -> None:
    put(server, "nodes", story.node)
    (pod,) = put(server, "pods", a_pod("p", story.limits, annotations=story.words))
    uid = pod["metadata"]["uid"]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        found = pod_of(server)["metadata"]["annotations"]
        common = {f"{story.domain}/vgpu-node": "a", f"{story.domain}/vgpu-time": SECONDS}
        common |= {f"{story.domain}/bind-phase": "allocating", f"{story.domain}/bind-time": SECONDS}
        assert {key: found[key] for key in found.keys() - ours(found).keys()} == story.words | story.written | common
        assert filled(up, held_by(up, uid)) == filled(up, story.held)
        notes = server.do(lambda: server.rules.get(("nodes", "", "a")))["metadata"]["annotations"]
        locks = {key: value for key, value in notes.items() if "lock" in key or key == VOLCANO_LOCK}
        text = OWNED if story.lock == MUTEX else OWNED.partition(",")[0]
        assert locks == ({story.lock: text} if story.lock else {})
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert filled(up, held_by(up, uid)) == filled(up, story.held)


@every_story
async def test_a_pod_that_hamis_scheduler_placed_holds_as_much(
    server: ApiServer, api: HttpKubeApi, story: Story
) -> None:
    put(server, "nodes", story.node)
    words = story.words | story.written | {f"{story.domain}/vgpu-node": "a"}
    (pod,) = put(server, "pods", a_pod("p", story.limits, annotations=words, nodeName="a", schedulerName="hami"))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        await until(lambda: up.front.cluster.held(pod["metadata"]["uid"]) is not None, "it is read")
        assert filled(up, held_by(up, pod["metadata"]["uid"])) == filled(up, story.of_hami or story.held)


def test_there_is_a_story_of_each_vendor_with_a_register() -> None:
    reported = {story.family for story in STORIES}
    vendors = {vendor.vendor for vendor in shipped() if vendor.family}
    assert {vendor.vendor for vendor in shipped() if {each.name for each in vendor.family} & reported} == vendors
    assert {family.name for family in FAMILIES} - reported == {"Ascend910C", "Enflame-DRS"}


# --- cards that go together ---


async def placed(up: Running, server: ApiServer, pod: Document) -> list[str] | str:
    """The cards that a pod gets on node a, by their indexes; or why it gets none."""
    answer = await up.place(pod, ["a"])
    if answer != "!a":
        return answer
    await up.front.context.api.write(Patch(NODES, "a", {"metadata": {"annotations": {MUTEX: None}}}))  # the plugin
    name = pod["metadata"]["name"]
    return pod_of(server, name)["metadata"]["annotations"]["ullage.io/gpu-ids"].split(",")


def pods_of(server: ApiServer, resource: str, *counts: int, **more: int | str) -> list[Document]:
    return put(server, "pods", *(a_pod(f"p{at}", {resource: count, **more}) for at, count in enumerate(counts)))


async def test_cards_of_kunlunxin_are_of_one_wing_or_linked_across(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", **{"kunlunxin.com/xpu": "8"}))
    first, second, third, fourth = pods_of(server, "kunlunxin.com/xpu", 1, 2, 4, 2)
    xpu = [f"a-kunlun-{number}" for number in range(8)]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await placed(up, server, first) == [xpu[0]]
        assert sorted(await placed(up, server, second)) == xpu[1:3]  # of the wing with three free cards, not four
        assert sorted(await placed(up, server, third)) == xpu[4:]
        assert "NumaNotFit" in await placed(up, server, fourth)  # one card is free
    odd = a_pod("odd", {"kunlunxin.com/xpu": 3})
    (odd,) = put(server, "pods", odd)
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        answer = await up.ask("filter", Pod=odd, NodeNames=["a"])
        assert "choose one of 1, 2, 4, 8" in answer["Error"]


async def test_a_card_of_kunlunxin_has_slices_of_one_size(server: ApiServer, api: HttpKubeApi) -> None:
    cards = (card(f"X{at}", 98304, index=at, type="XPU") for at in range(2))
    put(server, "nodes", a_node("a", registered("hami.io/node-register-xpu", *cards)))
    sizes = (24576, 49152, 20000, 40000, 98304)
    pods = [a_pod(f"p{at}", {"kunlunxin.com/vxpu": 1, "kunlunxin.com/vxpu-memory": s}) for at, s in enumerate(sizes)]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        small, middle, again, more, whole = [await placed(up, server, pod) for pod in put(server, "pods", *pods)]
        assert small == again
        assert middle == more
        assert small != middle
        assert "NumaNotFit" in whole


async def test_devices_of_neuron_are_in_a_row(server: ApiServer, api: HttpKubeApi) -> None:
    node = a_node("a", **{"aws.amazon.com/neuron": "8", "aws.amazon.com/neuroncore": "16"})
    put(server, "nodes", node)
    one, four, three, core, other = put(
        server,
        "pods",
        a_pod("one", {"aws.amazon.com/neuron": 1}, annotations={"aws.amazon.com/use-neuron-uuid": "a-AWSNeuron-1"}),
        a_pod("four", {"aws.amazon.com/neuron": 4}),
        a_pod("three", {"aws.amazon.com/neuron": 3}),
        a_pod("core", {"aws.amazon.com/neuroncore": 1}),
        a_pod("other", {"aws.amazon.com/neuroncore": 1}),
    )
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await placed(up, server, one) == ["a-AWSNeuron-1"]
        assert await placed(up, server, four) == [f"a-AWSNeuron-{at}" for at in (4, 5, 6, 7)]
        assert "NumaNotFit" in await placed(up, server, three)
        assert await placed(up, server, core) == await placed(up, server, other)
    written = [pod_of(server, name)["metadata"]["annotations"] for name in ("four", "core", "other")]
    assert written[0]["AWS_NEURON_IDS"] == "4,5,6,7"
    key = "hami.io/aws-neuron-devices-allocated"
    assert [each[key].rstrip(":;").rsplit(",", 1)[1] for each in written[1:]] == ["1", "2"]
    first, second = (int(each["AWS_NEURON_IDS"]) for each in written[1:])
    assert second == first + 1


async def test_cards_of_ascend_910c_are_whole_modules(server: ApiServer, api: HttpKubeApi) -> None:
    cards = [card(f"N{at}", 65536, 20, index=at, type="Ascend910C") for at in range(6)]
    cards[1] |= {"health": False}
    put(server, "nodes", a_node("a", registered("hami.io/node-register-Ascend910C", *cards)))
    one, two, none = pods_of(server, "huawei.com/Ascend910C", 1, 2, 2)
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert sorted(await placed(up, server, one)) == ["N2", "N3"]
        assert sorted(await placed(up, server, two)) == ["N4", "N5"]
        assert "NumaNotFit" in await placed(up, server, none)
    devices = pod_of(server, "p1")["metadata"]["annotations"]["hami.io/Ascend910C-devices-allocated"]
    assert devices == "N4,Ascend910C,65536,0:N5,Ascend910C,65536,0:;"


async def test_cards_of_ascend_are_of_one_network(server: ApiServer, api: HttpKubeApi) -> None:
    cards = [
        card(f"N{at}", 65536, 20, index=at, type="Ascend910B3", custominfo={"NetworkID": network})
        for at, network in enumerate((0, 1, 1, 0, 1))
    ]
    put(server, "nodes", a_node("a", registered("hami.io/node-register-Ascend910B3", *cards)))
    (pod,) = pods_of(server, "huawei.com/Ascend910B3", 3)
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        found = await placed(up, server, pod)
        assert isinstance(found, list), found
        assert sorted(found) == ["N1", "N2", "N4"]


async def test_pods_of_one_class_share_a_card_of_metax(server: ApiServer, api: HttpKubeApi) -> None:
    cards = [
        {"uuid": f"M{at}", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536, "healthy": True}
        for at in range(2)
    ]
    put(server, "nodes", a_node("a", {"metax-tech.com/node-gpu-devices": json.dumps(cards)}))
    limits = {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4, "metax-tech.com/vcore": 10}
    key = "metax-tech.com/sgpu-qos-policy"
    classes = ("best-effort", "fixed-share", "best-effort", "fixed-share")
    pods = put(server, "pods", *(a_pod(f"p{at}", limits, annotations={key: c}) for at, c in enumerate(classes)))
    (wrong,) = put(server, "pods", a_pod("wrong", limits, annotations={key: "fast"}))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        best, fixed, again, more = [await placed(up, server, pod) for pod in pods]
        assert best == again
        assert fixed == more
        assert best != fixed
        assert "choose one of best-effort" in (await up.ask("filter", Pod=wrong, NodeNames=["a"]))["Error"]


DRS = {
    "devices": [{"index": "0", "minor": "3", "capacity": 6}],
    "profiles": {"1g.6gb": "0", "2g.12gb": "1", "6g.36gb": "5", "bad": "9"},
}


@pytest.mark.parametrize(
    ("limits", "profile", "size", "mib", "cores"),
    [
        ({"enflame.com/drs-gcu": 2}, ("1", "2g.12gb"), 2, 12288, 34),
        ({"enflame.com/gcu-memory": 7}, ("1", "2g.12gb"), 2, 12288, 34),
        ({"enflame.com/gcu-memory": 4096}, ("0", "1g.6gb"), 1, 6144, 17),
        ({"enflame.com/gcu-core": 35}, ("5", "6g.36gb"), 6, 36864, 100),
    ],
)
async def test_slices_of_enflame_are_those_that_the_node_offers(
    server: ApiServer,
    api: HttpKubeApi,
    limits: dict[str, int | str],
    profile: tuple[str, str],
    size: int,
    mib: int,
    cores: int,
) -> None:
    put(server, "nodes", a_node("a", {"enflame.com/gcu-drs-capacity": json.dumps(DRS)}))
    (pod,) = put(server, "pods", a_pod("p", limits))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        held = held_by(up, pod["metadata"]["uid"])
        assert filled(up, held) == {"a-enflame-drs-0": (size * PPM // 6, mib)}
    found = pod_of(server)["metadata"]["annotations"]
    id_, name = profile
    assigned = {"c0": {"allocated": False, "request": size, "profileID": id_, "profileName": name}}
    assert {key: value for key, value in found.items() if "enflame" in key or key == "assigned-containers"} == {
        "hami.io/enflame-vgpu-devices-allocated": f"a-enflame-drs-0,Enflame,{mib},{cores}:;",
        "enflame.com/gcu-assigned": "false",
        "enflame.com/gcu-assigned-time": NANOSECONDS,
        "enflame.com/gcu-assigned-index": "0",
        "enflame.com/gcu-assigned-id": "0",
        "enflame.com/gcu-assigned-minor": "3",
        "enflame.com/gcu-request-size": str(size),
        "assigned-containers": json.dumps(assigned, separators=(",", ":")),
    }


async def test_six_slices_of_a_sixth_fill_a_card_of_enflame(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", {"enflame.com/gcu-drs-capacity": json.dumps(DRS)}))
    pods = pods_of(server, "enflame.com/drs-gcu", *([1] * 7))
    (none,) = put(server, "pods", a_pod("none", {"enflame.com/drs-gcu": 3}))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        answers = [await up.place(pod, ["a"]) for pod in pods]
        assert answers[:6] == ["!a"] * 6
        assert "refused" in answers[6]
        assert "1/1 ModeNotFit" in str(await up.ask("filter", Pod=none, NodeNames=["a"]))


async def test_a_node_has_cards_of_two_vendors(server: ApiServer, api: HttpKubeApi) -> None:
    registers = registered("hami.io/node-nvidia-register", card("GPU-1", 16000))
    registers |= registered("hami.io/node-amd-register", card("GPU-a", 65536, 304, index=1))
    put(server, "nodes", a_node("a", registers, **{"metax-tech.com/gpu": "1"}))
    pods = put(
        server,
        "pods",
        a_pod("amd", {"amd.com/gpu": 1, "amd.com/gpumem": 1024, "amd.com/gpucores": 10}),
        a_pod("nvidia", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1024}),
        a_pod("metax", {"metax-tech.com/gpu": 1}),
    )
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        for pod, uuid in zip(pods, ("GPU-a", "GPU-1", "a-metax-0"), strict=True):
            assert await placed(up, server, pod) == [uuid]


async def test_a_pod_of_two_vendors_that_hamis_scheduler_placed_holds_both(server: ApiServer, api: HttpKubeApi) -> None:
    registers = registered("hami.io/node-nvidia-register", card("GPU-1", 16000))
    registers |= registered("hami.io/node-amd-register", card("GPU-a", 65536, 304, index=1))
    put(server, "nodes", a_node("a", registers))
    words = both("vgpu", "GPU-1,NVIDIA,3000,30:;;") | both("amd", ";GPU-a,T1,1024,304:;") | {"hami.io/vgpu-node": "a"}
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}, {"amd.com/gpu": 1, "amd.com/gpumem": 1024}
    (pod,) = put(server, "pods", a_pod("p", *limits, annotations=words, nodeName="a", schedulerName="hami"))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        await until(lambda: up.front.cluster.held(pod["metadata"]["uid"]) is not None, "it is read")
        assert held_by(up, pod["metadata"]["uid"]) == {"GPU-1": (300_000, 3000), "GPU-a": (PPM, 1024)}


async def test_a_quota_of_one_vendor_leaves_others_alone(server: ApiServer, api: HttpKubeApi) -> None:
    """40 units of 256 MiB, and half of the cores of a card; the cards of another vendor are not limited."""
    mlu, vmemory, vcore = "cambricon.com/vmlu", "cambricon.com/mlu.smlu.vmemory", "cambricon.com/mlu.smlu.vcore"
    registers = registered("hami.io/node-nvidia-register", card("GPU-1", 60000))
    put(server, "nodes", a_node("a", registers, **{vcore: "100", vmemory: "80"}))
    hard = {f"limits.{vmemory}": "40", f"limits.{vcore}": "50"}
    body = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
    put(server, "resourcequotas", body)
    part = {mlu: 1, vmemory: 30, vcore: 10}
    first, more, cores, other = put(
        server,
        "pods",
        a_pod("first", part),
        a_pod("more", {mlu: 1, vmemory: 11, vcore: 10}),
        a_pod("cores", {mlu: 1, vmemory: 10, vcore: 41}),
        a_pod("other", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 50000, "nvidia.com/gpucores": 60}),
    )
    async with running(server, api, now=lambda: NOW, readers=READERS, resource_quotas=True) as up:
        assert await up.place(first, ["a"]) == "!a"
        for pod in (more, cores):
            assert "ResourceQuotaNotFit" in await up.place(pod, ["a"])
        assert await up.place(other, ["a"]) == "!a"
        assert up.front.quotas is not None
        figures = {each.resource: (each.limit, each.used) for _, each in up.front.quotas.figures()}
        assert figures == {vmemory: (40, 30), vcore: (50, 10)}
