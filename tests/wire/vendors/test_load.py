"""The files of vendors, and what is wrong with a file that is not taken."""

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.part import Isolation
from ullage.wire.vendors.load import check_apart, families_of, load_vendor, shipped, shipped_texts

GOOD = """
vendor = "Acme"
plain = ["acme.example/card"]

[defaults]
parts = "soft"
name = "{word}"

[defaults.resources]
count = "acme.example/{word}"
memory = "acme.example/{word}-memory"

[defaults.register]
format = "hami"
annotation = "hami.io/node-{word}-register"

[defaults.results]
allocated = "hami.io/{word}-devices-allocated"

[[family]]
word = "A1"

[family.memory]
unit_mib = 256

[[family]]
word = "A2"
parts = "hard"
"""


def test_each_vendor_of_the_package_is_read():
    names = {vendor.vendor for vendor in shipped()}
    assert names >= {"NVIDIA", "AMD", "Ascend", "AWSNeuron", "Biren", "Cambricon", "Enflame", "Hygon"}
    assert names >= {"Iluvatar", "KunlunXin", "MetaX", "MooreThreads", "Vastai"}
    assert len(names) == len(shipped_texts())


def test_defaults_and_words_make_the_families_of_a_file():
    one, two = load_vendor(GOOD, "acme.toml").family
    assert (one.name, one.vendor, one.parts, two.parts) == ("A1", "Acme", "soft", "hard")
    assert one.resources.memory == "acme.example/A1-memory"
    assert two.register.annotation == "hami.io/node-A2-register"
    assert (one.memory.unit_mib, two.memory.unit_mib) == (256, 1)


WRONG = [
    ('vendor = "Acme"', "vendor = 5", "acme.toml: vendor: 5", "a text"),
    ('vendor = "Acme"', "", "acme.toml: vendor: None", "missing"),
    ('vendor = "Acme"', "vendor =", "acme.toml", "TOML"),
    ('plain = ["acme.example/card"]', 'plain = "x"', "acme.toml: plain: 'x'", "a list"),
    ('plain = ["acme.example/card"]', "plain = [1]", "acme.toml: plain[0]: 1", "a text"),
    ('plain = ["acme.example/card"]', "plane = []", "acme.toml: plane: []", "no such field"),
    ('parts = "soft"', 'parts = "some"', "acme.toml: family[0].parts: 'some'", "choose one of"),
    ('name = "{word}"', "", "acme.toml: family[0].name: None", "missing"),
    ('count = "acme.example/{word}"', "", "acme.toml: family[0].resources.count: None", "missing"),
    ('count = "acme.example/{word}"', 'count = ""', "acme.toml: family[0].resources.count: ''", "length"),
    ('format = "hami"', 'format = "xml"', "acme.toml: family[0].register.format: 'xml'", "choose one of"),
    ('format = "hami"', 'format = "capacity"', "acme.toml: family[0].register: {", "`cards` and `uuid`"),
    ('annotation = "hami.io/node-{word}-register"', "", "acme.toml: family[0].register: {", "`annotation`"),
    ("unit_mib = 256", "unit_mib = 0", "acme.toml: family[0].memory.unit_mib: 0", ">= 1"),
    ("unit_mib = 256", 'unit_mib = "256"', "acme.toml: family[0].memory.unit_mib: '256'", "a whole number"),
    ("unit_mib = 256", 'amounts = "steps"', "acme.toml: family[0]: {", "memory.sizes"),
    ("unit_mib = 256", "unit = 256", "acme.toml: family[0].memory.unit: 256", "no such field"),
    ('word = "A1"', 'word = "A1"\nmodes = { fast = "soft" }', "acme.toml: family[0]: {", "annotations.mode"),
    (
        'word = "A1"',
        'word = "A1"\nannotations = { mode = "m" }\nmodes = { fast = "x" }',
        "modes[...]: {'fast': 'x'}",
        "choose one of",
    ),
    ('word = "A1"', 'word = "A1"\ncores = { modes = ["fast"] }', "acme.toml: family[0]: {", "'fast'"),
    ('word = "A1"', 'word = "A1"\nsets = "circles"', "acme.toml: family[0].sets: 'circles'", "choose one of"),
    ('word = "A1"', 'word = "A1"\ntemplates = [{ name = "t" }]', "templates[0].memory_mib: None", "missing"),
    (
        'word = "A1"',
        'word = "A1"\nclasses = { annotation = "a", values = ["x"], default = "y" }',
        "acme.toml: family[0]: {",
        "classes.default",
    ),
    (
        'word = "A1"',
        'word = "A1"\nlock = { format = "file" }',
        "acme.toml: family[0].lock.format: 'file'",
        "choose one of owner, time",
    ),
    (
        'allocated = "hami.io/{word}-devices-allocated"',
        'allocated = "a"\nextra = { k = "{indexess}" }',
        "acme.toml: family[0].results.extra.k: '{indexess}'",
        "did you mean indexes",
    ),
    ('word = "A1"', 'word = "A1"\nwebhook = { env = { X = "{node}" } }', "webhook.env.X: '{node}'", "nobody computes"),
    ('word = "A1"', 'word = "A1"\nregister = { uuid = "{pod}" }', "register.uuid: '{pod}'", "nobody computes"),
]


@pytest.mark.parametrize(("good", "bad", "where", "fix"), WRONG)
def test_an_error_names_file_field_value_and_fix(good, bad, where, fix):
    assert good in GOOD
    with pytest.raises(InvalidRequest) as caught:
        load_vendor(GOOD.replace(good, bad, 1), "acme.toml")
    assert where in caught.value.message
    assert fix in caught.value.message


def test_defaults_are_a_table_and_families_are_a_list_of_tables():
    for text, where in (("defaults = 3", "a.toml: defaults: 3"), ("family = 3", "a.toml: family: 3")):
        with pytest.raises(InvalidRequest, match=where):
            load_vendor(f'vendor = "A"\n{text}', "a.toml")
    with pytest.raises(InvalidRequest, match=r"a.toml: family\[0\]: 3 .* a table"):
        load_vendor('vendor = "A"\nfamily = [3]', "a.toml")


def test_two_families_have_no_resource_in_common():
    other = GOOD.replace('name = "{word}"', 'name = "Other {word}"').replace('"Acme"', '"Other"')
    with pytest.raises(InvalidRequest, match=r"Other A1: resources.count: 'acme.example/A1' .* A1 has it too"):
        check_apart([load_vendor(GOOD, "acme.toml"), load_vendor(other, "other.toml")])


def test_words_that_a_pod_may_write_as_a_vendor_are_no_two_vendors():
    assert len({vendor.vendor.casefold() for vendor in shipped()}) == len(shipped())


def test_what_the_families_of_the_package_isolate():
    parts = {family.name: family.parts for family in families_of(shipped())}
    whole = {name for name, each in parts.items() if each == "none"}
    assert whole == {"Biren", "Enflame", "KunlunXin", "MetaX", "Vastai"}
    nvidia = next(family for family in families_of(shipped()) if family.name == "NVIDIA")
    assert nvidia.modes == {"hami-core": Isolation.SOFT, "mig": Isolation.PARTITIONED, "mps": Isolation.HARD}
