"""Unknown environment variables are named, with the one that was probably meant."""

import re
from pathlib import Path

import pytest

import ullage
from ullage.model.variables import KNOWN, SETTINGS, unknown_variables

PACKAGE = Path(ullage.__file__).parent
LINKS = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "ULLAGE_SERVICE_HOST": "10.0.0.9",
    "ULLAGE_SERVICE_PORT": "443",
    "ULLAGE_SERVICE_PORT_HTTPS": "443",
    "ULLAGE_PORT": "tcp://10.0.0.9:443",
    "ULLAGE_PORT_443_TCP_ADDR": "10.0.0.9",
    "ULLAGE_WEBHOOK_SERVICE_HOST": "10.0.0.8",
    "ULLAGE_WEBHOOK_PORT_443_TCP": "tcp://10.0.0.8:443",
}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ULLAGE_HOEM", "ULLAGE_HOME"), ("ULLAGE_ENDPOINTS", "ULLAGE_ENDPOINT"), ("ULLAGE_TOKN", "ULLAGE_TOKEN")],
)
def test_a_misspelt_variable_is_named_with_the_similar_one(name, meant):
    (text,) = unknown_variables({name: "x", "HOME": "/root"})
    assert text.startswith(f"{name} is set, and nothing reads it: did you mean {meant}? known are ULLAGE_HOME, ")


def test_a_variable_without_a_similar_one_is_named_with_all_known_ones():
    (text,) = unknown_variables({"ULLAGE_XYZZY_QQQQ": ""})
    assert text == f"ULLAGE_XYZZY_QQQQ is set, and nothing reads it: known are {', '.join(SETTINGS)}"


def test_known_variables_and_those_of_others_are_fine():
    assert unknown_variables(dict.fromkeys(KNOWN, "x") | {"ULLAG": "", "ULLAGER_X": "", "PATH": ""}) == []


def test_service_variables_of_a_kubelet_are_known_only_in_a_pod():
    assert unknown_variables(LINKS) == []
    elsewhere = {name: value for name, value in LINKS.items() if name.startswith("ULLAGE_")}
    assert len(unknown_variables(elsewhere)) == len(elsewhere)
    assert len(unknown_variables({**LINKS, "ULLAGE_HOEM": "x"})) == 1


def test_every_variable_that_the_code_names_is_in_the_table():
    texts = (path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "variables.py")
    named = {name for text in texts for name in re.findall(r"\bULLAGE_[A-Z_]+\b", text)}
    assert len(named) > 20
    assert named - KNOWN == set()
