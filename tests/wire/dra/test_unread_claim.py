"""The readable parts of a claim whose devices cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.model.device_claim import UnreadDevices
from ullage.model.error import InvalidRequest
from ullage.wire.dra.unread_claim import read_held, unread_devices, users_of


def a_result(driver: str = "gpu.nvidia.com", pool: str = "a", **more: Any) -> dict[str, Any]:
    return {"request": "r", "driver": driver, "pool": pool, "device": "gpu-0"} | more


def on(*nodes: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": "In", "values": list(nodes)}]}


def a_claim(results: Any, *terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelector": {"nodeSelectorTerms": list(terms)}} if terms else {}
    return {
        "metadata": {"name": "c", "uid": "u"},
        "status": {"allocation": {"devices": {"results": results}} | selector},
    }


UNREADABLE = {"consumedCapacity": {"memory": "much"}}
ZONE = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("claim", "can_be"),
    [
        (a_claim([a_result(**UNREADABLE)]), UnreadDevices(pools=frozenset({("gpu.nvidia.com", "a")}))),
        (
            a_claim([a_result(**UNREADABLE), a_result("nic", "b")], on("n")),
            UnreadDevices(frozenset("n"), frozenset({("gpu.nvidia.com", "a"), ("nic", "b")})),
        ),
        (a_claim([a_result(pool="", **UNREADABLE)]), UnreadDevices(pools=frozenset({("gpu.nvidia.com", "")}))),
        (a_claim([a_result("", **UNREADABLE)], on("n")), UnreadDevices(frozenset("n"))),
        (a_claim("of another version", {**ZONE, **on("n")}, on("m")), UnreadDevices(frozenset("nm"))),
        (a_claim("of another version", on("n"), ZONE), UnreadDevices()),
        (a_claim("of another version", on("n", key="status.phase")), UnreadDevices()),
        (a_claim("of another version"), UnreadDevices()),
    ],
)
def test_an_unreadable_claim_may_have_devices_of_readable_pools(claim: dict[str, Any], can_be: UnreadDevices):
    with pytest.raises(InvalidRequest):
        read_held(claim)
    assert unread_devices(claim) == can_be


@pytest.mark.parametrize(
    ("unread", "pool", "is_about"),
    [
        (UnreadDevices(), ("d", "p"), True),
        (UnreadDevices(pools=frozenset({("d", "p")})), ("d", "p"), True),
        (UnreadDevices(pools=frozenset({("d", "p")})), ("d", "q"), False),
        (UnreadDevices(pools=frozenset({("d", "")})), ("d", "q"), True),
        (UnreadDevices(pools=frozenset({("d", "")})), ("e", "q"), False),
    ],
)
def test_the_pools_of_unread_devices(unread: UnreadDevices, pool: tuple[str, str], *, is_about: bool):
    assert unread.applies_to(*pool) is is_about


def test_users_of_an_unreadable_claim_are_returned_where_they_can_be_read():
    pods = [{"resource": "pods", "name": "p", "uid": "u-p"}, {"resource": "others", "name": "o", "uid": "u-o"}]
    assert users_of({"status": {"reservedFor": pods}}) == [("p", "u-p")]
    assert users_of({"status": {"reservedFor": "all"}}) == []


def test_unread_devices_are_described_in_a_sentence():
    assert str(UnreadDevices()) == "any driver on any node"
    assert str(UnreadDevices(frozenset("ba"), frozenset({("d", ""), ("d", "p")}))) == "any pool of d or p of d on a, b"
