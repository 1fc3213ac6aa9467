"""The verbs that hold cards, on a real server with four cards of 100 TFLOPS and 40 GiB."""

import json
import re
import time

import pytest

from tests.system.live_server import wait_until


def rows(table):
    """The cells of a table, without its titles."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()[1:]]


def held(http):
    return {body["uid"]: body["state"] for body in http.get("/v1/allocations").json()}


# --- assume, commit, forget ---


def test_a_reservation_is_bound_by_commit_or_removed_by_forget(ran, http):
    assert ran("alloc p -r gpu=1 --assume")[0] == 0
    assert ran("alloc q -r gpu=1 --assume")[0] == 0
    assert held(http) == {"p": "assumed", "q": "assumed"}
    code, out, _ = ran("commit p")
    assert (code, rows(out)[0][:2]) == (0, ["p", "bound"])
    assert ran("forget q p never-there") == (0, "q: holds nothing\np: holds nothing\nnever-there: holds nothing\n", "")
    assert held(http) == {}


def test_an_unknown_reservation_is_not_committed(ran):
    code, out, err = ran("commit p")
    assert (code, out) == (2, "")
    assert err.startswith("ullage: allocation p does not exist")
    assert "hint: `ullage allocations`" in err
    code, _, err = ran("adjust p -r vram=2g")
    assert (code, err.splitlines()[0]) == (2, "ullage: allocation p does not exist")


# --- limits ---


@pytest.mark.parametrize("line", ["alloc p -r tflops=50,vram=1g", "gang submit g p -r tflops=50,vram=1g"])
def test_a_limit_goes_with_the_request(ran, http, line):
    assert ran("quotas set default --total-limits tflops=100")[0] == 0
    assert ran(f"{line} --limit tflops=80")[0] == 0
    assert http.get("/v1/quotas/default").json()["used"]["limits"]["tflops"] == "80"


def test_a_plan_judges_the_limit_too(ran):
    ran("quotas set default --total-limits tflops=100")
    assert ran("plan -r tflops=50 --limit tflops=100")[0] == 0
    code, out, _ = ran("plan -r tflops=50 --limit tflops=101")
    assert code == 1
    assert out.startswith("does not fit: total.max.tflops.limit: ")


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("gpu=2", "--limit: 'gpu=2'"),
        ("tflops", "--limit: 'tflops'"),
        ("vram=1g,vram=2g", "given twice"),
        ("tflops=much", "--limit tflops: 'much'"),
    ],
)
def test_a_limit_that_is_no_amount_of_a_card_is_refused(ran, http, limit, text):
    for verb, failed in (("alloc p", 2), ("gang submit g p", 2), ("plan", 2)):
        code, _, err = ran(f"{verb} -r tflops=1 --limit {limit}")
        assert code == failed
        assert text in err
    assert held(http) == {}


# --- refusals ---


@pytest.mark.parametrize(
    ("resreq", "code", "text", "helps"),
    [
        ("gpu=4", 75, "not-enough-gpus-on-node", "`ullage gpus` shows their holders"),
        ("gpu_model=H100", 78, "wrong-model", "freed cards would not help"),
        ("gpu=3,tflops=1", 78, "single.max.gpuCount.limit", "waiting does not help"),
        ("tflops=60", 75, "total.max.tflops.request", "raise its quota"),
        ("gpu=2,tflops=51", 78, "total.max.tflops.request", "waiting does not help"),
    ],
)
def test_a_refusal_shows_its_code_and_a_hint(ran, resreq, code, text, helps):
    ran("alloc first -r gpu=1,tflops=50 --namespace team")
    if "." in text:
        ran("quotas set team --total-requests tflops=100 --max-gpu-count 2")
    got, out, err = ran(f"alloc p -r {resreq} --namespace team")
    assert (got, out) == (code, "")
    message, hint = err.splitlines()
    assert message.startswith(f"ullage: {text}: ")
    assert hint.startswith("hint: ")
    assert helps in hint


def test_a_refusal_is_json_too(ran):
    code, out, _ = ran("alloc p -r gpu_model=H100 -o json")
    assert (code, json.loads(out)["code"]) == (78, "wrong-model")


# --- adjust ---


def test_a_dry_run_shows_the_change_and_ends_like_a_plan(ran, http):
    ran("alloc p -r gpu=2,tflops=50,vram=10g")
    before = http.get("/v1/allocations/p").json()
    code, out, _ = ran("adjust p -r tflops=90,vram=8g --dry-run")
    assert code == 0
    assert "nothing has changed" in out
    assert rows(out)[-1][2:] == ["+40 TFLOPS, -2Gi vram", "+40 TFLOPS, -2Gi vram", "10 TFLOPS, 32Gi vram"]
    code, _, err = ran("adjust p -r tflops=101,vram=8g --dry-run")
    assert code == 1
    assert err.splitlines()[0].startswith("ullage: scaling-exceeded: ")
    assert "tflops=100,vram=40Gi of each card" in err
    ran("quotas set default --total-requests tflops=150,vram=40g")
    assert "tflops=75,vram=20Gi of each card" in ran("adjust p -r tflops=101,vram=8g --dry-run")[2]
    assert "tflops=75,vram=20Gi of each card" in ran("adjust p -r tflops=76,vram=8g --dry-run")[2]
    assert ran("adjust nobody -r tflops=1 --dry-run")[0] == 2
    assert http.get("/v1/allocations/p").json() == before


def test_adjust_changes_request_and_limit_or_nothing(ran, http):
    ran("alloc p -r tflops=50,vram=10g")
    ran("alloc q -r tflops=30,vram=1g --gpu " + json.loads(ran("show allocation p -o json")[1])["gpus"][0]["uuid"])
    assert ran("adjust p -r tflops=71,vram=10g")[0] == 75
    assert ran("adjust p -r tflops=101,vram=10g")[0] == 78
    ran("free q")
    code, out, _ = ran("adjust p -r tflops=60,vram=12g --limit tflops=80,vram=20g -o json")
    body = json.loads(out)
    more = body["delta_limit"]
    assert (code, more["compute_gflops"], more["vram_bytes"]) == (0, 30_000, 10 << 30)
    assert http.get("/v1/allocations/p").json() == body["allocation"]


@pytest.mark.parametrize(
    ("options", "text"),
    [("-r vram=some", "--request vram: 'some'"), ("-r vram=1 --limit percent=0", "--limit percent:")],
)
def test_an_amount_that_is_none_is_named_by_its_option(ran, options, text):
    ran("alloc p -r vram=1g")
    code, _, err = ran(f"adjust p {options}")
    assert code == 2
    assert err.startswith(f"ullage: {text}")


def test_only_bound_allocations_are_adjusted(ran):
    ran("alloc p -r vram=1g --assume")
    code, _, err = ran("adjust p -r vram=2g")
    assert code == 75
    assert err.startswith("ullage: not-allocated: p is not bound")
    assert "`ullage commit` binds" in err


def test_a_failure_for_one_request_does_not_stop_the_others(ran, http):
    for uid in ("a", "b"):
        assert ran(f"alloc {uid} -r gpu=1 --assume")[0] == 0
    code, out, err = ran("commit nosuch a b")
    assert code == 2
    assert "nosuch" in err
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["bound", "bound"]
    code, out, err = ran("free a nosuch b")
    assert code == 2
    assert "allocation nosuch does not exist" in err
    assert [line.split(":")[0] for line in out.splitlines()] == ["a", "b"]
    assert http.get("/v1/allocations").json() == []


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("alloc p -r gpu=1,mem=80", "resreq.mem: 80 is not valid: it counts bytes"),
        ("alloc p -r vram=80", "write vram=20g or so"),
        ("plan -r gpu=0.5,vram=1k", "write vram=20g or so"),
        ("submit -r cpu=1,vram=40 -- true", "write vram=20g or so"),
    ],
)
def test_memory_without_its_unit_is_refused_as_the_bytes_that_it_counts(ran, line, fix):
    code, _, err = ran(line)
    assert code == 2
    assert "it counts bytes" in err
    assert fix in err


def test_vram_without_its_unit_is_no_change_of_a_request(ran):
    assert ran("alloc p -r vram=4g")[0] == 0
    code, _, err = ran("adjust p --request vram=20")
    assert code == 2
    assert "vram: 20 is not valid: it counts bytes" in err


# --- release ---


def test_a_releasing_request_keeps_its_cards_until_it_is_freed(ran, http):
    ran("alloc p -r gpu=4")
    code, out, _ = ran("release p")
    assert (code, rows(out)[0][:2]) == (0, ["p", "releasing"])
    assert ran("alloc q -r gpu=1")[0] == 75
    ran("free p")
    assert ran("alloc q -r gpu=1")[0] == 0


def test_a_release_with_a_time_shows_when_the_cards_are_free(ran):
    before = time.time()
    ran("alloc p -r gpu=1")
    ran("alloc q -r gpu=1")
    code, out, _ = ran("release p q --within 10m -o json")
    first, second = json.loads(out)
    assert (code, first["state"], second["state"]) == (0, "releasing", "releasing")
    assert before + 600 <= first["release_by"] <= time.time() + 600
    year = time.strftime("%Y-", time.localtime(first["release_by"]))
    assert re.search(rf"^release_by +{year}", ran("show allocation p")[1], re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("release nobody", "nobody"),
        ("release p --within soon", "--within: 'soon'"),
        ("release p --within 400000d", "--within"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(ran, http, line, text):
    ran("alloc p -r gpu=1")
    code, _, err = ran(line)
    assert code == 2
    assert text in err
    assert held(http) == {"p": "bound"}


# --- gangs ---


def test_a_gang_waits_as_a_whole_runs_as_a_whole_and_is_given_up(ran, http):
    ran("alloc other -r gpu=2")
    code, out, _ = ran("gang submit g a b c -r gpu=1 --timeout 10m")
    assert code == 0
    assert out.startswith("g: waiting\n")
    assert [row[:2] for row in rows(out)[2:]] == [["a", "-"], ["b", "-"], ["c", "-"]]
    ran("free other")
    wait_until(lambda: json.loads(ran("gang show g -o json")[1])["phase"] == "running", "the gang runs")
    assert [row[:2] for row in rows(ran("gang show g")[1])[2:]] == [["a", "bound"], ["b", "bound"], ["c", "bound"]]
    assert ran("gang end g") == (0, "g: ended; its members hold nothing\n", "")
    assert held(http) == {}
    assert ran("gang show g")[0] == 2


def test_a_gang_needs_only_its_required_members(ran, http):
    assert ran("gang submit g a b c d e -r gpu=1 --required 3")[1].startswith("g: running\n")
    assert set(held(http)) < {"a", "b", "c", "d", "e"}
    ran("gang end g")


@pytest.mark.parametrize("options", ["--timeout never", "--required 3", "--limit gpu=1"])
def test_a_gang_that_makes_no_sense_is_refused(ran, http, options):
    assert ran(f"gang submit g a b -r gpu=1 {options}")[0] == 2
    assert http.get("/v1/gangs/g").status_code == 404


# --- quotas ---


def test_a_quota_is_set_shown_with_its_usage_and_deleted(ran):
    ran("alloc p -r gpu=2,tflops=30.25,vram=10g --namespace team")
    code, out, _ = ran("quotas set team --total-requests tflops=100,vram=30g --max-workers 3")
    assert (code, rows(out)[0][:7]) == (0, ["team", "yes", "60.5/100", "20Gi/30Gi", "60.5", "20Gi", "1/3"])
    ran("quotas set team --total-limits vram=21g")
    assert rows(ran("quotas")[1])[0][:7] == ["team", "no", "60.5", "20Gi", "60.5", "20Gi/21Gi", "1/32768"]
    assert ran("quotas delete team") == (0, "the quota of team is deleted\n", "")
    assert rows(ran("quotas list")[1]) == []
    code, _, err = ran("quotas delete team")
    assert (code, err) == (2, "ullage: quota team does not exist\n")


def test_every_field_of_a_quota_can_be_set(ran, http):
    sent = (
        "quotas set team --total-requests tflops=10 --total-limits vram=9g --max-workers 5 --max-requests tflops=4 "
        "--max-limits tflops=4 --max-gpu-count 1 --default-requests tflops=3 --default-limits tflops=4 "
        "--alert-threshold-percent 10"
    )
    assert ran(sent)[0] == 0
    assert ran("alloc a -r gpu=2,tflops=1 --namespace team")[2].startswith("ullage: single.max.gpuCount.limit: ")
    assert ran("alloc a -r tflops=5 --namespace team")[2].startswith("ullage: single.max.tflops.request: ")
    assert ran("alloc a -r vram=1g --namespace team")[0] == 0
    quota = http.get("/v1/quotas/team").json()
    assert (quota["total"]["max_workers"], quota["ready"]) == (5, False)
    assert (quota["used"]["requests"]["tflops"], quota["used"]["limits"]["tflops"]) == ("3", "4")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "`ullage quotas delete`"),
        ("--total-requests percent=5", "--total-requests percent: '5'"),
        (
            "--total-requests tflops=5 --total-limits tflops=4",
            "--total-limits tflops: 4 is not valid: at least --total-requests tflops (5)",
        ),
        ("--alert-threshold-percent 101", "--alert-threshold-percent: 101"),
        ("--max-requests vram=2g --max-limits vram=1g", "--max-limits vram: 1073741824"),
        ("--default-limits vram=many", "--default-limits vram: 'many'"),
        ("--max-gpu-count -1", "--max-gpu-count: -1"),
        ("--max-workers -1", "--max-workers: -1"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_and_the_old_one_stays(ran, http, options, text):
    ran("quotas set team --max-workers 7")
    code, _, err = ran(f"quotas set team {options}")
    assert code == 2
    assert text in err
    assert http.get("/v1/quotas/team").json()["total"]["max_workers"] == 7


def test_all_fields_of_a_quota_are_shown_in_readable_units(ran):
    ran("alloc p -r tflops=30.5,vram=10g --namespace team")
    ran("quotas set team --total-requests tflops=100,vram=30g --max-gpu-count 2 --default-limits percent=12.5")
    shown = dict(line.split(maxsplit=1) for line in ran("show quota team")[1].splitlines())
    assert shown["total"] == "requests.tflops=100, requests.vram=30Gi, max_workers=32768"
    assert shown["single"] == "max_gpu_count=2, default_limits.percent=12.5"
    used = "requests.tflops=30.5, requests.vram=10Gi, limits.tflops=30.5, limits.vram=10Gi, workers=1"
    assert shown["used"] == used
    assert shown["last_update"].startswith(time.strftime("%Y-"))


# --- what is shown ---


def test_a_plan_is_shown_in_units_that_people_read(ran):
    assert rows(ran("plan -r tflops=30,vram=8g")[1])[2][1:] == ["30", "8Gi", "soft", "-"]


def test_an_allocation_is_shown_without_empty_fields(ran):
    ran("alloc p -r tflops=30,vram=8g")
    out = ran("show allocation p")[1]
    assert "compute_gflops=30000" in out
    assert "slot_start" not in out


def test_a_limit_is_shown_as_it_was_typed(ran):
    ran("alloc p -r tflops=30,vram=8g --limit tflops=40.5,vram=10g")
    assert "tflops=40.5,vram=10Gi" in ran("allocations -o wide")[1]
    assert "tflops=40.5, vram=10Gi" in ran("show allocation p")[1]


def test_one_allocation_is_one_object_in_json(ran):
    assert json.loads(ran("alloc p -r gpu=1 -o json")[1])["uid"] == "p"


def test_a_repeat_of_a_uid_with_other_amounts_gets_a_warning(ran):
    assert ran("alloc twice -r gpu=1")[0] == 0
    assert ran("alloc twice -r gpu=1")[2] == ""
    code, _, text = ran("alloc twice -r gpu=2")
    assert code == 0
    assert text.startswith("warning: twice exists already and holds cpu=0,mem=0,gpu=1, not cpu=0,mem=0,gpu=2; ")
    assert "`ullage free twice` frees them" in text
    text = ran("alloc twice -r gpu=1 --namespace other --qos high --limit vram=1g")[2]
    assert "twice exists already and holds the limit none, not vram=1Gi; namespace default, not other; " in text
    assert "priority 0, not 10000; " in text
    assert ran("free twice")[0] == 0


def test_the_owner_of_a_request_is_shown_at_its_cards(ran):
    owner = json.loads(ran("alloc owned -r gpu=1 -o json")[1])["owner"]
    (holder,) = [each for gpu in json.loads(ran("gpus -o json")[1]) for each in gpu["holders"]]
    assert (holder["executor"], holder["session"], holder["owner"]) == ("owned", None, owner)
    assert "owned" in ran(f"gpus -u {owner}")[1]
    assert ran("free owned")[0] == 0


def test_a_quota_of_so_many_bytes_lacks_its_unit(ran):
    code, _, text = ran("quotas set bytes --total-requests vram=80")
    assert (code, "'80' is not valid: a number alone counts bytes; write 80m for MiB, 80g" in text) == (2, True)


def test_amounts_that_a_quota_adds_are_no_repeat(ran):
    assert ran("quotas set filled --default-requests vram=2g")[0] == 0
    for _ in range(2):
        code, out, text = ran("alloc filled-1 --namespace filled -r percent=10")
        assert (code, text) == (0, "")
        assert "percent=10,vram=2Gi" in out
    assert (
        "holds cpu=0,mem=0,gpu=1,percent=10,vram=2Gi, not cpu=0,mem=0,gpu=1,percent=20,vram=2Gi"
        in (ran("alloc filled-1 --namespace filled -r percent=20")[2])
    )
    assert ran("free filled-1")[0] == ran("quotas delete filled")[0] == 0


def test_a_change_to_nothing_is_refused_and_a_tried_one_is_readable_as_yaml(ran):
    assert ran("alloc shrinks -r vram=4g")[0] == 0
    code, _, text = ran("adjust shrinks -r tflops=0")
    assert (code, "no amount of its cards is requested" in text) == (2, True)
    assert ran("adjust shrinks -r vram=2g --dry-run -o yaml")[1].startswith("remain:")
    assert ran("free shrinks")[0] == 0
