"""The annotations of pods with cards, written and read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.hami.pods import MIB, limits, pod
from ullage.model.error import InvalidAnnotation, InvalidRequest
from ullage.model.gpu import Gpu
from ullage.wire.hami.results import (
    BindPhase,
    GivenCards,
    HamiDevice,
    decode_devices,
    devices_of,
    encode_devices,
    grant_of,
    to_allocate,
)
from ullage.wire.vendors.container_request import FamilyRequest
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.registers import RegisteredCard
from ullage.wire.vendors.shipped import NVIDIA

CARDS = {name: RegisteredCard(Gpu(name, 0, vram_bytes=8000 * MIB), 100) for name in ("GPU-a", "GPU-b")}


def given_to(*containers, init=(), gpus=("GPU-a", "GPU-b")):
    return devices_of(container_requests(pod(*containers, init=init), NVIDIA), gpus, GivenCards(CARDS))


def test_each_container_has_what_it_requested():
    found = given_to({}, limits(gpu=1, mem=3000, cores=30), limits(gpu=1, percent=50, cores=10), init=[limits(gpu=2)])
    written = "GPU-a,NVIDIA,8000,100:GPU-b,NVIDIA,8000,100:;;GPU-a,NVIDIA,3000,30:;GPU-b,NVIDIA,4000,10:;"
    assert encode_devices(found) == written
    assert decode_devices(written) == found


def test_missing_cards_are_named():
    for gpus in (("GPU-a",), ("GPU-a", "GPU-x")):
        with pytest.raises(InvalidRequest, match="gpus"):
            given_to(limits(gpu=2, mem=1), gpus=gpus)


def test_annotations_written_at_bind():
    asked = FamilyRequest(NVIDIA, container_requests(pod(limits(gpu=1, mem=3000)), NVIDIA))
    grant = grant_of(asked, given_to(limits(gpu=1, mem=3000)), "node-1", 1769860800.9)
    written = to_allocate(grant)
    assert written == {
        "hami.io/vgpu-node": "node-1",
        "hami.io/vgpu-time": "1769860800",
        "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,3000,0:;",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,0:;",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1769860800",
    }
    assert to_allocate(grant, phase=BindPhase.FAILED)["hami.io/bind-phase"] == "failed"


def test_older_and_other_writers_are_read():
    assert decode_devices("") == ()
    assert decode_devices(";") == ((),)
    assert decode_devices("GPU-a[0-1],NVIDIA,3000,30,2:;;")[0][0] == HamiDevice("GPU-a[0-1]", "NVIDIA", 3000, 30, "2")
    assert HamiDevice("GPU-a[0-1]", "NVIDIA", 1, 1).card == "GPU-a"


@pytest.mark.parametrize(
    "written",
    ["x", "a,b,1,2", "a,b,1:;", "a,b,1,2,3,4:;", "a,b,x,2:;", "a,b,-1,2:;", ",b,1,2:;", "a,b,1,2;", ";" * 5000],
)
def test_malformed_input_is_refused(written):
    with pytest.raises(InvalidAnnotation) as caught:
        decode_devices(written)
    assert caught.value.field == NVIDIA.results.allocated


_NAMES = st.text("GPU-ab[]0", min_size=1, max_size=8)
_DEVICES = st.builds(
    HamiDevice, _NAMES, _NAMES, st.integers(0, 2**31 - 1), st.integers(0, 100), st.none() | st.just("1")
)


@given(st.lists(st.lists(_DEVICES, max_size=3).map(tuple), max_size=4).map(tuple))
def test_devices_are_read_as_they_were_written(containers):
    assert decode_devices(encode_devices(containers)) == containers
