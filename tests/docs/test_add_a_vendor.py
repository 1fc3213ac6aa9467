"""The file of a vendor in the documentation is read, and does what is said there."""

import re
from pathlib import Path

from ullage.model.part import Part
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.hami.results import GivenCards, devices_of, grant_of, to_allocate
from ullage.wire.vendors.load import load_vendor
from ullage.wire.vendors.registers import NodeText, registered_cards

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "add-a-vendor.md").read_text()
MIB = 2**20


def block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return text


def test_the_vendor_of_the_page_is_placed_as_the_page_says():
    (family,) = load_vendor(block("toml"), "acme.toml").family
    limits = dict(re.findall(r"`(acme\.example/\w+): (\d+)`", PAGE))
    assert limits == {"acme.example/card": "1", "acme.example/memory": "4", "acme.example/cores": "25"}
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    asked = PodReader(PodSettings(families=(family,)))(pod)
    assert asked.requirement.part == Part(vram_bytes=1024 * MIB, compute_ppm=250_000)
    register = '[{"id": "A0", "count": 4, "devmem": 16384, "devcore": 100, "health": true}]'
    cards = registered_cards(family, NodeText("a", {family.register.annotation: register}))
    given = GivenCards({card.gpu.uuid: card for card in cards})
    devices = devices_of(asked.devices.containers, ["A0"], given, family)
    written = to_allocate(grant_of(asked.devices, devices, "a", 0.0))
    shown = dict(re.findall(r'^([\w./-]+): "(.*)"$', block("yaml"), re.MULTILINE))
    assert len(shown) == 3
    assert {key: written[key] for key in shown} == shown
