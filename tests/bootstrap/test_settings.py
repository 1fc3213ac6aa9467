"""Cards in the settings file, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.bootstrap.kube import terms_of
from ullage.bootstrap.settings import Settings, read_settings
from ullage.core.strategies.load import Weights
from ullage.engines.local.sharing import HamiCore, Mps, Unenforced
from ullage.inventory.facts import CardFacts
from ullage.kube.client.lease import LeaseTerms
from ullage.model.card_driver import NVIDIA, CardDriver
from ullage.model.card_pool import PoolRule
from ullage.model.compute import AppQuota, CardQuota, OwnerQuota
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.oversubscription import Oversubscription
from ullage.model.profiles import SHIPPED
from ullage.model.provider import SHIPPED as ALIGNED


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "ullage.toml"
    file.write_text(text)
    return read_settings(file)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[policy]\nreclaim_grace_s = nan", "policy.reclaim_grace_s"),
        ("[policy]\nreserve_after_s = -nan", "policy.reserve_after_s"),
        ("[[node.card]]\ntflops = 1\n[[node.card]]\ntflops = nan", r"node.card\[1\].tflops"),
    ],
)
def test_an_invalid_number_is_refused_with_its_place(tmp_path: Path, text: str, place: str):
    with pytest.raises(InvalidRequest, match=f"{place}: nan is not valid: write a number"):
        settings(tmp_path, text)


def test_cards_are_described_in_sections_of_their_own(tmp_path: Path):
    found = settings(
        tmp_path,
        "[node]\ngpus = 2\n"
        '[[node.card]]\nmodel = "A100"\nvendor = "nvidia"\nvram = "40g"\ntflops = 19.5\n'
        '[[node.card]]\nids = ["1"]\npool = "training"\ntflops = "500m"\n',
    )
    machine = found.machine(found.sharing())
    assert machine.gpus == 2
    assert machine.facts == (
        CardFacts(model="A100", vendor="NVIDIA", vram_bytes=40 << 30, compute_gflops=19_500),
        CardFacts(ids=("1",), pool="training", compute_gflops=500),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('vram = "much"', "node.card.vram"),
        ('vram = "40"', "node.card.vram: '40' is not valid: a number alone counts bytes; write 40m for MiB"),
        ("tflops = -1", "node.card.tflops"),
        ("tflops = 0", "node.card.tflops"),
        ('ids = ["first"]', "node.card.ids"),
        ('model = "A|B"', "node.card.model"),
        ('colour = "green"', "colour"),
    ],
)
def test_a_wrong_fact_stops_the_start_and_is_named(tmp_path: Path, line: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[[node.card]]\n{line}\n").machine(Unenforced())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'memory = "16"',
            "node.memory: '16' is not valid: a number alone counts bytes; write 16m for MiB, 16g for GiB",
        ),
        ('reserved = "mem=2"', "node.reserved.mem: 2 is not valid: a number alone counts bytes"),
        ("cpu = -3", "node.cpu: -3 is not valid"),
    ],
)
def test_an_amount_of_a_node_without_its_unit_stops_the_start(tmp_path: Path, line: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[node]\n{line}\n").machine(Unenforced())


@pytest.mark.parametrize("line", ['limit = "mem=16"', 'guarantee = "mem=16"', 'default_resreq = "mem=16"'])
def test_an_amount_of_a_queue_without_its_unit_stops_the_start(tmp_path: Path, line: str):
    with pytest.raises(InvalidRequest, match=r"^queues\.lab.*mem: 16 is not valid: a number alone counts bytes"):
        settings(tmp_path, f"[queues.lab]\n{line}\n").queues["lab"].read("lab")


def test_parts_are_not_enforced_by_default(tmp_path: Path):
    assert isinstance(settings(tmp_path, "").sharing(), Unenforced)


def test_mps_is_where_its_directories_are(tmp_path: Path):
    found = settings(tmp_path, f'[node]\nsharing = "mps"\nmps_pipe = "{tmp_path}"\n').sharing()
    assert found == Mps(tmp_path, Path("/var/log/nvidia-mps"))


def test_hami_is_where_its_library_is(tmp_path: Path):
    library = tmp_path / "libvgpu.so"
    library.touch()
    found = settings(tmp_path, f'[node]\nsharing = "hami"\nhami_library = "{library}"\n').sharing()
    assert found == HamiCore(library)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('sharing = "mps"\nmps_pipe = "/nowhere/mps"', "node.mps_pipe.*no such directory"),
        ('sharing = "hami"', "node.hami_library.*libvgpu.so"),
        ('sharing = "hami"\nhami_library = "/nowhere/libvgpu.so"', "node.hami_library.*no such file"),
        ('sharing = "hami"\nhami_library = "libvgpu.so"', "absolute path"),
        ('sharing = "both"', "node.sharing"),
    ],
)
def test_a_missing_requirement_of_sharing_stops_the_start(tmp_path: Path, lines: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[node]\n{lines}\n").sharing()


REQUESTS = """
[node]
disk = "1t"
[requests]
strategy = "compact-first"
preempt_cluster_wide = false
weights = { vram = 0.5, compute = 0.5 }
oversubscription = { compute_oversell_ratio = 200 }
[requests.pools.training]
strategy = "low-load-first"
[requests.pools.serving]
weights = { vram = 1, compute = 0 }
oversubscription = { vram_expand_to_host_mem = 0, vram_expand_to_host_disk = 100 }
[[requests.budget]]
workload = "web"
min_available = 2
[[requests.budget]]
namespace = "team"
workload = "web"
min_available = 1
"""


def test_a_pool_inherits_the_rules_of_requests(tmp_path: Path):
    rules = settings(tmp_path, REQUESTS).requests("lab-1")
    assert (rules.strategy, rules.strategies) == (
        "compact-first",
        {"training": "low-load-first", "serving": "compact-first"},
    )
    assert rules.weights == {"": Weights(0.5, 0.5), "serving": Weights(1, 0)}
    assert rules.oversubscription == {"": Oversubscription(50, 70, 200), "serving": Oversubscription(0, 100, 500)}
    assert rules.disks == {"lab-1": 1 << 40}
    assert not rules.preempt_cluster_wide
    assert rules.min_available == {("default", "web"): 2, ("team", "web"): 1}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "[requests.oversubscription]\ncompute_oversell_ratio = 99",
            "requests.oversubscription.compute_oversell_ratio: 99",
        ),
        (
            "[requests.pools.p.oversubscription]\nvram_expand_to_host_mem = 101",
            "requests.pools.p.oversubscription.vram_expand_to_host_mem: 101 .* from 0 to 100",
        ),
        ("[requests.oversubscription]\nvram_expand_to_host_disk = 1.5", "requests.oversubscription.vram_expand"),
        ("[requests.oversubscription]\nratio = 2", "ratio"),
        ("[requests.weights]\nvram = 1.5", "requests.weights.vram: 1.5 .* from 0 to 1"),
        ("[requests.pools.p.weights]\ncompute = nan", "requests.pools.p.weights.compute: nan"),
        ("[requests.weights]\nvram = 0\ncompute = 0", "requests.weights: .* above 0"),
        ('[requests.pools.p]\nstrategy = "best"', "requests.pools.p.strategy: 'best' .* choose one of"),
        ('[requests.pools.""]\nstrategy = "spread"', "requests.pools"),
        ("[requests]\npreempt_cluster_wide = 1", "preempt_cluster_wide"),
        ('[[requests.budget]]\nworkload = "web"', "min_available"),
        ('[[requests.budget]]\nworkload = ""\nmin_available = 1', "requests.budget.workload"),
        ('[[requests.budget]]\nworkload = "web"\nmin_available = -1', "requests.budget.min_available: -1"),
        ('[[requests.budget]]\nnamespace = "-"\nworkload = "web"\nmin_available = 1', "requests.budget.namespace"),
        (
            '[[requests.budget]]\nworkload = "web"\nmin_available = 1\n' * 2,
            "requests.budget.workload: 'web' .* remove one",
        ),
        ('[node]\ndisk = "much"', "node.disk"),
    ],
)
def test_a_wrong_rule_for_requests_stops_the_start_and_is_named(tmp_path: Path, lines: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, lines + "\n").requests("lab-1")


PROFILE = """
[[model]]
name = "Lab card"
vendor = "NVIDIA"
max_placement_slots = 2
[[model.templates]]
name = "half"
memory_gigabytes = 8
compute_percent = 50
max_partition = 2
placement_limit = [0, 1]
placement_offset = 1
"""


def test_profiles_of_the_operator_are_read_beside_the_settings_and_go_first(tmp_path: Path):
    (tmp_path / "cards.toml").write_text(PROFILE)
    profiles = settings(tmp_path, 'profiles = ["cards.toml"]').card_profiles()
    found = profiles.of(Gpu("GPU-0", 0, model="Lab card"))
    assert found is not None
    assert [template.name for template in found.templates] == ["half"]
    assert profiles.entries[1:] == SHIPPED.entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "profiles: '.*cards.toml' .* cannot be read"),
        ("[[model]]\nname = 1", "profiles: .*cards.toml: model 0: name: 1"),
        (PROFILE.replace("= 50", "= 51"), "cards.toml: model 'Lab card': template 'half': compute_percent: 51"),
        ("x = " + "[" * 9999, "cards.toml: profiles: not a table in TOML"),
    ],
)
def test_a_file_of_profiles_is_read_whole_or_stops_the_start(tmp_path: Path, text: str | None, message: str):
    if text is not None:
        (tmp_path / "cards.toml").write_text(text)
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, 'profiles = ["cards.toml"]').card_profiles()


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_the_operator_may_say_how_work_is_aligned(tmp_path: Path, policy: str):
    path = tmp_path / "ullage.toml"
    path.write_text(f'numa = "{policy}"')
    assert read_settings(path).zone_policy() == policy
    assert read_settings(None).zone_policy() is None


def test_an_unknown_policy_of_zones_is_refused(tmp_path: Path):
    path = tmp_path / "ullage.toml"
    path.write_text('numa = "strict"')
    with pytest.raises(InvalidRequest, match=r"numa: 'strict' .*choose one of none, best-effort, restricted"):
        read_settings(path).zone_policy()


@pytest.mark.parametrize(
    ("setting", "rule"), [("auto", None), ("kubelet", "kubelet"), ("current-best", "current-best")]
)
def test_the_rule_of_the_least_width(tmp_path: Path, setting: str, rule: str | None):
    assert settings(tmp_path, f'[topology]\nwidth_rule = "{setting}"\n').zone_rules().width_rule == rule
    assert read_settings(None).zone_rules().width_rule is None


def test_a_rule_of_the_least_width_that_is_none_stops_the_start(tmp_path: Path):
    with pytest.raises(
        InvalidRequest, match=r"topology.width_rule: 'free' .*choose one of auto, kubelet, current-best"
    ):
        settings(tmp_path, '[topology]\nwidth_rule = "free"\n').zone_rules()


def test_entries_of_the_operator_go_before_those_that_are_shipped(tmp_path: Path):
    text = (
        '[[topology.provider]]\nresource = "memory"\nalign = false\n[[topology.provider]]\nresource = "intel.com/*"\n'
    )
    rules = settings(tmp_path, text).zone_rules()
    assert [(entry.resource, entry.align) for entry in rules.providers[:2]] == [
        ("memory", False),
        ("intel.com/*", True),
    ]
    assert rules.providers[2:] == ALIGNED
    assert read_settings(None).zone_rules().providers == ALIGNED


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('resource = "a*b"', r"topology.provider.resource: 'a\*b'"),
        ('resource = "cpu"\nkind = "device"', r"topology.provider.kind: 'device' .*of kind cpu"),
        (
            'resource = "cpu"\n[[topology.provider]]\nresource = "cpu"',
            r"topology.provider.resource: 'cpu' .*remove one",
        ),
        ('resource = "cpu"\nweight = 2', "weight"),
        ("align = false", "resource"),
    ],
)
def test_a_wrong_entry_about_alignment_stops_the_start(tmp_path: Path, lines: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[[topology.provider]]\n{lines}\n").zone_rules()


def test_a_label_about_alignment_that_cannot_be_read_stops_the_start(tmp_path: Path):
    found = settings(tmp_path, '[node.labels]\n"ullage.io/numa-align-cpu" = "no"\n')
    with pytest.raises(InvalidRequest, match=r"node.labels.ullage.io/numa-align-cpu: 'no' .*write true or false"):
        found.machine(Unenforced())


def test_how_zones_count_among_nodes(tmp_path: Path):
    rules = settings(tmp_path, '[topology]\nscore = "relative"\nweight = 10\n').zone_rules()
    assert (rules.relative, rules.weight) == (True, 10)
    assert (read_settings(None).zone_rules().relative, read_settings(None).zone_rules().weight) == (False, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('score = "best"', r"topology.score: 'best' .*choose one of absolute, relative"),
        ("weight = -1", r"topology.weight: -1.0 .*from 0 to 1000"),
        ("weight = 1001", r"topology.weight"),
        ("weight = nan", r"topology.weight"),
        ('weight = "much"', r"topology.weight"),
    ],
)
def test_a_wrong_word_on_how_zones_count_stops_the_start(tmp_path: Path, line: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[topology]\n{line}\n").zone_rules()


@pytest.mark.parametrize("text", ["x = " + "[" * 9999, "x = " + "9" * 9999, "numa = ", "\x00"])
def test_invalid_toml_stops_the_start(tmp_path: Path, text: str):
    with pytest.raises(InvalidRequest, match=r"ullage.toml is not valid TOML"):
        settings(tmp_path, text)


def test_quotas_of_owners_are_quantities(tmp_path: Path):
    text = (
        '[kube.bindings.quotas.alice]\ncards = 2\nvram = "40Gi"\n[kube.bindings.quotas."*"]\ncards = 0\ncpu = "1500m"\n'
    )
    found = settings(tmp_path, text).kube.bindings.owner_quotas
    assert found == {"alice": OwnerQuota(2, 40 * 2**30), "*": OwnerQuota(0, cpu_milli=1500)}


def test_quotas_of_owners_have_quotas_of_models_and_applications(tmp_path: Path):
    text = """
        [kube.bindings.quotas.alice]
        models.A100 = {cards = 1}
        [kube.bindings.quotas.alice.apps.chat]
        vram = "8Gi"
        models."RTX 4090" = {vram = "4Gi"}
    """
    chat = AppQuota(vram_bytes=8 * 2**30, models={"RTX 4090": CardQuota(vram_bytes=4 * 2**30)})
    found = settings(tmp_path, text).kube.bindings.owner_quotas
    assert found == {"alice": OwnerQuota(models={"A100": CardQuota(1)}, apps={"chat": chat})}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models.A100 = {cards = -1}", r"quotas.bob.models.A100.cards"),
        ('apps.chat.models.A100 = {vram = "much"}', r"quotas.bob.apps.chat.models.A100.vram"),
        ('models."" = {cards = 1}', r"quotas.bob.models"),
        ('apps.chat = {cpu = "1"}', "cpu"),
    ],
)
def test_an_impossible_quota_of_a_model_or_application_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[kube.bindings.quotas.bob]\n{text}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [("cards = -1", "quotas.bob.cards"), ('vram = "a lot"', "quotas.bob.vram"), ("gpus = 1", "gpus")],
)
def test_an_impossible_quota_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[kube.bindings.quotas.bob]\n{text}\n")


def test_drivers_of_cards_are_described_by_names_of_attributes(tmp_path: Path):
    assert settings(tmp_path, "").kube.drivers == (NVIDIA,)
    assert settings(tmp_path, "").kube.claims
    text = '[[kube.card_driver]]\ndriver = "x.example.com"\nvendor = "X"\nkind = ""\nuuid = "id"\nzone = "socket"\n'
    found = settings(tmp_path, f"[kube]\nclaims = false\n{text}").kube
    assert found.drivers == (CardDriver("x.example.com", "X", kind="", uuid="id", zone="socket"),)
    assert not found.claims


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('driver = ""\nvendor = "X"', "kube.card_driver.driver"),
        ('driver = "d"\nvendor = "X"\nuuid = ""', "kube.card_driver.uuid"),
        ('vendor = "X"', "driver"),
        ('driver = "d"\nvendor = "X"\nnuma = "x"', "numa"),
    ],
)
def test_a_driver_that_names_no_card_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[[kube.card_driver]]\n{text}\n")


def test_the_compute_of_card_models_can_be_set(tmp_path: Path):
    assert settings(tmp_path, "").kube.figures.of("NVIDIA A100-SXM4-80GB").compute_gflops == 312_000
    text = '[[kube.card_model]]\nname = "A100"\ntflops = 250.5\n[[kube.card_model]]\nname = "X"\nvram = "8Gi"\n'
    figures = settings(tmp_path, text).kube.figures
    assert figures.of("NVIDIA A100-SXM4-80GB").compute_gflops == 250_500
    assert figures.of("X").vram_bytes == 8 * 2**30


def test_pools_of_cards_can_be_set(tmp_path: Path):
    text = '[[kube.card_pool]]\nname = "large"\nlabels = {"a/b" = "c"}\nmodels = ["H100"]\n'
    (rule,) = settings(tmp_path, text).kube.pools
    assert rule == PoolRule("large", {"a/b": "c"}, ("H100",))
    assert settings(tmp_path, "").kube.pools == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = " "', "kube.card_pool.name"),
        ('name = "a,b"', "kube.card_pool.name"),
        ('name = "a"\nlabels = {"b c" = "d"}', "kube.card_pool.a.labels"),
        ('name = "a"\nmodels = ["NVIDIA"]\n[[kube.card_pool]]\nname = "b"\nmodels = [""]', "kube.card_pool.b.models"),
        ('name = "a"\nnodes = ["n"]', "nodes"),
    ],
)
def test_a_pool_that_no_card_can_be_in_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[[kube.card_pool]]\n{text}\n")


def test_a_leader_stops_well_before_another_one_leads(tmp_path: Path):
    for text, terms in {
        "": LeaseTerms(),
        "lease_s = 6": LeaseTerms(6, 0.8, 4.0),
        "lease_s = 60": LeaseTerms(60, 2.0, 40.0),
        "lease_s = 9\nlease_renew_s = 3": LeaseTerms(9, 3.0, 6.0),
    }.items():
        assert terms_of(settings(tmp_path, f"[kube]\n{text}\n").kube) == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lease_s = 2", "kube.lease_s"),
        ("lease_s = 301", "kube.lease_s"),
        ("lease_renew_s = 0", "kube.lease_renew_s"),
        ("lease_renew_s = 5.1", "kube.lease_renew_s"),
    ],
)
def test_a_lease_under_which_leaders_come_and_go_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[kube]\n{text}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = ""\ntflops = 1', "name"),
        ('name = "X"', "state tflops or vram"),
        ('name = "X"\ntflops = "many"', "kube.card_model.X.tflops"),
        ('name = "X"\nvram = "8Q"', "kube.card_model.X.vram"),
        ('name = "X"\nvram = "80"', "kube.card_model.X.vram: '80' is not valid: it counts bytes; write 80Gi or so"),
        ('name = "X"\ngflops = 1', "gflops"),
    ],
)
def test_an_impossible_figure_stops_the_start(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message):
        settings(tmp_path, f"[[kube.card_model]]\n{text}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[nod]\ngpus = 1\n", "unknown field `nod`; did you mean node? Known are server, node, policy, "),
        ("[node]\ngpuss = 1\n", "unknown field `gpuss` - at `node`; did you mean gpus? Known are name, gpus, "),
        ('[[node.card]]\nvrm = "1g"\n', "unknown field `vrm` - at `node.card[0]`; did you mean vram? Known are ids, "),
        ("[queues.a]\nwgt = 2\n", "unknown field `wgt` - at `queues[...]`; did you mean weight? Known are "),
        ("[requests.pools.x]\nstratgy = 1\n", "did you mean strategy? Known are strategy, weights, oversubscription"),
        ("[node]\nxyzzy = 1\n", "unknown field `xyzzy` - at `node`; Known are name, gpus, "),
    ],
)
def test_a_misspelt_key_is_answered_with_the_one_that_is_near(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest) as caught:
        settings(tmp_path, text)
    assert message in str(caught.value)
    assert "ullage.toml" in str(caught.value)


def test_sessions_are_not_given_less_memory_than_a_process_takes(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"settings: resreq: resreq\.mem: 16 is not valid: it counts bytes"):
        settings(tmp_path, 'resreq = "cpu=1,mem=16"\n').default_requirement()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[node]\nmemory = 4\n", "Expected a text in quotes, got a whole number - at `node.memory`"),
        ('[node]\ngpus = "4"\n', "Expected a whole number or a list, got a text in quotes - at `node.gpus`"),
        ("node = 4\n", "Expected a section, got a whole number - at `node`"),
    ],
)
def test_a_value_of_another_kind_is_answered_in_words(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidRequest) as caught:
        settings(tmp_path, text)
    assert message in str(caught.value)


@pytest.mark.parametrize("line", ["weight = 0", 'parent = "a"', 'limit = "gpu=x"', 'guarantee = "cpu=-1"'])
def test_a_wrong_queue_is_named(tmp_path: Path, line: str):
    with pytest.raises(InvalidRequest, match=r"^queues\.a: .* is not valid: "):
        settings(tmp_path, f"[queues.a]\n{line}\n").share_tree()
