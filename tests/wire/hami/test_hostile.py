"""Malformed documents and texts: each is read, or refused as invalid input, in a short time."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.hami.pods import CORES, GPU, MEMORY, PERCENT, PRIORITY, limits, nvidia, pod, read_register
from tests.wire.topology.hostile import SCALARS, shaped
from ullage.model.error import InvalidRequest
from ullage.wire.dialect import PodReader, PodSettings, read_pod
from ullage.wire.hami.admission import check_pod
from ullage.wire.hami.node import read_cordon, read_handshake
from ullage.wire.hami.request import read_hami
from ullage.wire.hami.results import decode_devices, encode_devices
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.scores import read_scores
from ullage.wire.vendors.shipped import NVIDIA

KEYS = (*NVIDIA.annotation_keys(), "ullage.io/gpu-ids", "hami.io/vgpu-devices-allocated", "ullage.io/vram-request")
AMOUNTS = (GPU, MEMORY, PERCENT, CORES, PRIORITY)
VALUES = SCALARS | st.sampled_from(
    ["1", "3k", "8Gi", "1e9", "101", "true", "mig", "a,b", "slot=1,core=1,memory=3", "mutex,numa", "x,y,1,2:;"]
)
WORDS = nvidia(count={"default": 129}, memory={"default_mib": 2**40, "unit_mib": 2**24})

shapes = shaped(
    pod(limits(gpu=1, mem=1), init=[limits(gpu=1)], annotations=dict.fromkeys(KEYS, "1"), spec={"nodeName": "n"}),
    AMOUNTS,
)
pods = st.builds(
    lambda containers, annotations: pod(*containers, annotations=annotations),
    st.lists(
        st.dictionaries(st.sampled_from(AMOUNTS), VALUES).map(lambda reported: {"resources": {"limits": reported}}),
        max_size=3,
    ),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
)


@given(shapes | pods)
def test_any_pod_is_read_or_refused(document):
    if not isinstance(document, dict):
        return
    for read in (
        read_pod,
        read_hami,
        check_pod,
        lambda each: read_hami(each, WORDS),
        lambda each: container_requests(each, NVIDIA),
        PodReader(PodSettings("tensor-fusion.ai", families=(NVIDIA, WORDS))),
    ):
        with suppress(InvalidRequest):
            read(document)


_CARD = {
    "id": "a",
    "index": 0,
    "count": 1,
    "devmem": 1,
    "devcore": 1,
    "type": "T",
    "numa": 0,
    "mode": "mig",
    "health": True,
}
_TEXTS = st.text('Ga0-9,:;[]{}"_ .true=\\', max_size=60) | st.text(max_size=30)


@given(shaped([_CARD], _CARD) | shaped([{"uuid": "a", "score": {"b": 10}}], ("a", "b")))
def test_any_json_of_a_node_is_read_or_refused(document):
    _tried(msgspec.json.encode(document).decode())


@given(_TEXTS)
def test_any_text_is_read_or_refused(text):
    _tried(text)


def test_long_texts_are_refused_quickly():
    for piece in ("a,1,1,1,T,0,true:", "a,b,1,2:", ";", ",", ":", "[", '{"a":', "_", "9", "a,"):
        _tried(piece * 200_000)


def _tried(text):
    for read in (read_register, partial(read_scores, key="k"), read_cordon, read_handshake):
        with suppress(InvalidRequest):
            read(text)
    with suppress(InvalidRequest):
        assert decode_devices(encode_devices(decode_devices(text))) == decode_devices(text)


def test_brackets_without_end_are_read_in_one_pass():
    ((device,),) = decode_devices("[" * 250_000 + ",NVIDIA,1,1:;")
    assert device.card == device.uuid
    assert replace(device, uuid="GPU-0[3]").card == "GPU-0"
