"""Which devices satisfy claims, against a search through everything on small random cases."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.verdict.device_search import Offer, SearchExhausted, Steps, groups, rank, search
from ullage.core.verdict.device_use import DeviceUse, consumption
from ullage.model.device_claim import Constraint, DeviceAlternative, DeviceClaim, DeviceRequest, DeviceResult
from ullage.model.slice_device import Attribute, Capacity, Pool, RequestPolicy, SliceDevice, ValueKind
from ullage.model.taint import Taint, Toleration, tolerated

DRIVER = "gpu.example.com"


def text(value):
    return Attribute(ValueKind.STRING, (value,))


def gpu(name, **attributes):
    marked = {f"{DRIVER}/{key}": value for key, value in attributes.items()}
    return SliceDevice(DRIVER, "p", name, "n", attributes=marked)


def claim(*requests, constraints=()):
    return DeviceClaim("u", "ns", "c", tuple(requests), tuple(constraints))


def exactly(name, count=1, **more):
    return DeviceRequest(name, (DeviceAlternative(name, "any", count=count, **more),))


def offered(*devices, used=(), selects=lambda wanted, device: True, counters=None, **more):
    pools = {(DRIVER, "p"): Pool(DRIVER, "p", tuple(devices), counters or {})}
    use, by_id = DeviceUse(pools), {device.id: device for device in devices}
    for result in used:
        use.enter(result, by_id.get(result.device))
    return Offer(devices, use, selects, **more)


def find(claims, offer, **more):
    return search(claims, offer, Steps(), **more)


def names(picks):
    return None if picks is None else [pick.device.name for pick in picks]


# --- one rule at a time ---


def test_the_first_devices_in_the_order_that_they_are_offered_in():
    devices = gpu("b"), gpu("a"), gpu("c")
    assert names(find([claim(exactly("r", 2))], offered(*devices))) == ["b", "a"]
    assert find([claim(exactly("r", 4))], offered(*devices)) is None


def test_what_is_held_is_not_given_again_but_to_admins_who_take_nothing():
    devices = gpu("a"), gpu("b")
    held = DeviceResult("r", devices[0].id)
    assert names(find([claim(exactly("r"))], offered(*devices, used=[held]))) == ["b"]
    assert find([claim(exactly("r", 2))], offered(*devices, used=[held])) is None
    admin = exactly("r", 2, admin=True)
    assert names(find([claim(admin)], offered(*devices, used=[held]))) == ["a", "b"]
    watching = DeviceResult("r", devices[0].id, admin=True)
    assert names(find([claim(exactly("r", 2))], offered(*devices, used=[watching]))) == ["a", "b"]
    assert names(find([claim(admin), claim(exactly("r", 2))], offered(*devices))) == ["a", "b", "a", "b"]


def test_all_is_every_one_or_nothing():
    devices = gpu("a", model=text("x")), gpu("b", model=text("y")), gpu("c", model=text("x"))

    def only_x(wanted, device):
        return device.text("model") == "x"

    everything = claim(exactly("r", None))
    assert names(find([everything], offered(*devices, selects=only_x))) == ["a", "c"]
    assert find([everything], offered(*devices, selects=lambda w, d: False)) is None
    assert find([everything], offered(*devices, used=[DeviceResult("r", devices[0].id)], selects=only_x)) is None
    assert names(find([everything], offered(*devices, used=[DeviceResult("r", devices[1].id)], selects=only_x)))
    assert find([everything], offered(*devices, whole=False)) is None
    assert find([everything], offered(*devices, selects=lambda w, d: None if d.name == "b" else True)) is None


def test_alternatives_are_tried_in_their_order_and_given_up_where_the_rest_cannot_be_had():
    devices = gpu("big"), gpu("small-1"), gpu("small-2")

    def by_class(wanted, device):
        return device.name.startswith(wanted.device_class)

    either = DeviceRequest("r", (DeviceAlternative("r/big", "big"), DeviceAlternative("r/small", "small", count=2)))
    offer = offered(*devices, selects=by_class)
    assert names(find([claim(either)], offer)) == ["big"]
    both = [claim(either), claim(DeviceRequest("s", (DeviceAlternative("s", "big"),)))]
    found = find(both, offer)
    assert names(found) == ["small-1", "small-2", "big"]
    assert rank(both, found) == (1, 0)
    assert {pick.request for pick in found} == {"r/small", "s"}


def test_devices_match_where_a_list_has_something_in_common_and_differ_where_nothing():
    def on(*zones):
        return Attribute(ValueKind.INT, zones, listed=len(zones) > 1)

    devices = gpu("a", zone=on(0, 1)), gpu("b", zone=on(2)), gpu("c", zone=on(1, 2)), gpu("d")
    match = Constraint(f"{DRIVER}/zone")
    two, three = claim(exactly("r", 2), constraints=[match]), claim(exactly("r", 3), constraints=[match])
    assert names(find([two], offered(*devices))) == ["a", "c"]
    assert find([three], offered(*devices)) is None  # pairs have one in common, all three have none
    differ = claim(exactly("r", 2), constraints=[Constraint(f"{DRIVER}/zone", distinct=True)])
    assert names(find([differ], offered(*devices))) == ["a", "b"]
    kinds = gpu("a", zone=on(1)), gpu("b", zone=text("1"))
    assert find([two], offered(*kinds)) is None  # the number is not the text


def test_a_cpu_device_and_a_nic_lie_together():
    zone = "resource.kubernetes.io/numaNode"
    cpu = SliceDevice("dra.cpu", "p", "cpu", "n", attributes={zone: Attribute(ValueKind.INT, (4,))})
    nic = SliceDevice("dra.net", "p", "nic", "n", attributes={zone: Attribute(ValueKind.INT, (6, 4, 5, 7), True)})
    both = claim(exactly("c"), exactly("n"), constraints=[Constraint(zone)])

    def by_driver(wanted, device):
        return device.name.startswith(wanted.name)

    assert names(find([both], offered(cpu, nic, selects=by_driver))) == ["cpu", "nic"]


def test_a_constraint_is_about_the_requests_that_it_names():
    devices = gpu("a", m=text("x")), gpu("b", m=text("y")), gpu("c", m=text("x"))
    match = Constraint(f"{DRIVER}/m", ("r", "t/second"))
    requests = exactly("r"), exactly("s"), DeviceRequest("t", (DeviceAlternative("t/second", "any"),))
    assert names(find([claim(*requests, constraints=[match])], offered(*devices))) == ["a", "b", "c"]


def test_a_device_with_a_taint_goes_to_who_tolerates_it():
    taint = Taint("bad", "yes", "NoSchedule")
    tainted = SliceDevice(DRIVER, "p", "a", "n", taints=(taint, Taint("note", effect="None")))
    assert find([claim(exactly("r"))], offered(tainted)) is None
    assert find([claim(exactly("r", tolerations=(Toleration("bad", "Exists"),)))], offered(tainted))
    assert find([claim(exactly("r", tolerations=(Toleration("bad", value="no"),)))], offered(tainted)) is None


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "v"), False),
        (Toleration("k", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_tolerations_are_those_of_kubernetes(toleration, does):
    assert tolerated([Taint("k", "v", "NoSchedule")], [toleration]) is does
    assert tolerated([Taint("k", "v", "PreferNoSchedule")], [])


def test_partitions_and_the_whole_card_draw_from_the_same_counters():
    def part(name, memory):
        return SliceDevice(DRIVER, "p", name, "n", counters={"card": {"memory": memory}})

    devices = part("whole", 80), part("half-1", 40), part("half-2", 40), part("half-3", 40)
    counters = {"card": {"memory": 80}}

    def halves(wanted, device):
        return device.name.startswith(wanted.device_class)

    def half(name):
        return DeviceRequest(name, (DeviceAlternative(name, "half", count=2),))

    offer = offered(*devices, counters=counters, selects=halves)
    assert names(find([claim(half("r"))], offer)) == ["half-1", "half-2"]
    assert find([claim(half("r"), half("s"))], offer) is None
    held = [DeviceResult("r", devices[0].id)]
    assert find([claim(half("r"))], offered(*devices, counters=counters, used=held, selects=halves)) is None
    assert find([claim(half("r"))], offered(*devices, counters={}, selects=halves)) is None  # nothing to draw from


MEMORY = f"{DRIVER}/memory"


def shared(policy=None, amount=80):
    return SliceDevice(DRIVER, "p", "a", "n", capacity={MEMORY: Capacity(amount, policy)}, shareable=True)


def test_shares_of_a_device_are_rounded_up_and_stay_within_it():
    device = shared(RequestPolicy(default=10, least=10, step=10))
    asks = [exactly("r", capacity={"memory": 31}), exactly("s"), exactly("t", capacity={MEMORY: 5})]
    found = find([claim(*asks)], offered(device))
    assert [dict(pick.consumed) for pick in found] == [{MEMORY: 40}, {MEMORY: 10}, {MEMORY: 10}]
    used = [DeviceResult("x", device.id, share="1", consumed={MEMORY: 30})]
    assert find([claim(*asks)], offered(device, used=used)) is None
    assert find([claim(*asks)], offered(device, used=[*used[:0]]))


@pytest.mark.parametrize(
    ("capacity", "asked", "taken"),
    [
        (Capacity(80), None, 80),
        (Capacity(80), 7, 7),
        (Capacity(80), 81, None),
        (Capacity(80, RequestPolicy(20, (20, 40))), None, 20),
        (Capacity(80, RequestPolicy(20, (20, 40))), 21, 40),
        (Capacity(80, RequestPolicy(20, (20, 40))), 41, None),
        (Capacity(80, RequestPolicy(20, least=20)), 3, 20),
        (Capacity(80, RequestPolicy(20, least=20, most=60, step=20)), 41, 60),
        (Capacity(80, RequestPolicy(20, least=20, most=60, step=20)), 61, None),
        (Capacity(80, RequestPolicy(20, least=10, step=30)), 11, 40),
    ],
)
def test_what_a_share_takes_follows_the_policy(capacity, asked, taken):
    device = SliceDevice(DRIVER, "p", "a", capacity={MEMORY: capacity}, shareable=True)
    found = consumption(device, {} if asked is None else {MEMORY: asked})
    assert found == (None if taken is None else {MEMORY: taken})


def test_a_device_that_is_held_alone_has_to_have_what_is_asked_and_nothing_is_taken():
    device = SliceDevice(DRIVER, "p", "a", capacity={MEMORY: Capacity(80)})
    assert consumption(device, {"memory": 80}) == {}
    assert consumption(device, {"memory": 81}) is None
    assert consumption(device, {"other": 1}) is None
    assert consumption(device, {"memory": 1, MEMORY: 1}) is None  # the same, said twice


def test_what_others_hold_is_out_and_only_counted_devices_are_narrowed():
    devices = gpu("a"), gpu("b"), gpu("c")
    assert names(find([claim(exactly("r"))], offered(*devices, free=lambda d: d.name != "a"))) == ["b"]
    assert find([claim(exactly("r", None))], offered(*devices, free=lambda d: d.name != "a")) is None
    last = find([claim(exactly("r"))], offered(*devices), allows=lambda d: d.name == "c")
    assert names(last) == ["c"]
    assert names(find([claim(exactly("r", None))], offered(*devices), allows=lambda d: d.name == "c")) == list("abc")


def test_a_search_that_is_too_long_says_so():
    devices = [gpu(f"d{number:02}", m=text(str(number % 7))) for number in range(28)]
    hard = claim(exactly("r", 5), constraints=[Constraint(f"{DRIVER}/m")])
    with pytest.raises(SearchExhausted):
        search([hard], offered(*devices), Steps(100))
    assert find([hard], offered(*devices)) is None


def test_devices_that_match_each_other_are_told_by_group():
    devices = gpu("a", m=text("y")), gpu("b", m=text("x")), gpu("c", m=text("y")), gpu("d")
    both = [claim(exactly("r", 2), constraints=[Constraint(f"{DRIVER}/m")])]
    picks = find(both, offered(*devices))
    assert [sorted(id_.name for id_ in group) for group in groups(both, picks, devices)] == [["b"], ["a", "c"]]


# --- against everything ---

ATTRIBUTE = f"{DRIVER}/zone"
drawn_devices = st.lists(
    st.builds(
        lambda zones, model, memory, taken, taint, shareable: (zones, model, memory, taken, taint, shareable),
        st.lists(st.integers(0, 2), min_size=0, max_size=2, unique=True),
        st.sampled_from("xy"),
        st.integers(1, 3),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
wants = st.tuples(
    st.sampled_from(["x", "y", ""]), st.sampled_from([1, 1, 2, 3, None]), st.booleans(), st.integers(0, 3)
)
requests_ = st.lists(wants, min_size=1, max_size=2)
claims_ = st.lists(
    st.tuples(st.lists(requests_, min_size=1, max_size=2), st.sampled_from(["", "match", "distinct"]), st.booleans()),
    min_size=1,
    max_size=2,
)


def build(drawn, total):
    devices = []
    for number, (zones, model, memory, taken, taint, shareable) in enumerate(drawn):
        attributes = {f"{DRIVER}/model": text(model)}
        if zones:
            attributes[ATTRIBUTE] = Attribute(ValueKind.INT, tuple(zones), len(zones) > 1)
        devices.append(
            SliceDevice(
                DRIVER,
                "p",
                f"d{number}",
                "n",
                attributes=attributes,
                capacity={MEMORY: Capacity(memory)},
                counters={"c": {"k": taken}} if taken else {},
                taints=(Taint("t", effect="NoSchedule"),) if taint else (),
                shareable=shareable,
            )
        )
    return devices, {"c": {"k": total}}


def build_claims(drawn):
    found = []
    for number, (requests, kind, only_first) in enumerate(drawn):
        made = []
        for place, alternatives in enumerate(requests):
            several = len(alternatives) > 1
            made.append(
                DeviceRequest(
                    f"r{place}",
                    tuple(
                        DeviceAlternative(
                            f"r{place}/a{n}" if several else f"r{place}",
                            model,
                            count=count,
                            admin=admin and not several,
                            tolerations=(Toleration("t", "Exists"),) if asked == 3 else (),
                            capacity={MEMORY: asked} if asked in (1, 2) else {},
                        )
                        for n, (model, count, admin, asked) in enumerate(alternatives)
                    ),
                )
            )
        about = ("r0",) if only_first else ()
        constraints = (Constraint(ATTRIBUTE, about, kind == "distinct"),) if kind else ()
        found.append(DeviceClaim(f"u{number}", "ns", f"c{number}", tuple(made), constraints))
    return found


def takes(wanted, device):
    return wanted.device_class in ("", device.text("model"))


def everything(claims, devices, counters):
    """The best rank at which all claims can be satisfied; None if they cannot."""
    slots = [(number, request) for number, each in enumerate(claims) for request in each.requests]
    for ranks in sorted(itertools.product(*(range(len(request.alternatives)) for _, request in slots))):
        options = []
        for place, (_, request) in zip(ranks, slots, strict=True):
            wanted = request.alternatives[place]
            fit = [d for d in devices if takes(wanted, d) and consumption(d, wanted.capacity) is not None]
            if wanted.count is None:
                options.append([tuple(fit)] if fit else [])
            elif wanted.admin:
                options.append(list(itertools.combinations(fit, wanted.count)))
            else:
                options.append(list(itertools.combinations_with_replacement(fit, wanted.count)))
        wanteds = [request.alternatives[place] for place, (_, request) in zip(ranks, slots, strict=True)]
        for chosen in itertools.product(*options):
            if allowed(claims, slots, wanteds, chosen, counters):
                return ranks
    return None


def allowed(claims, slots, wanteds, chosen, counters):
    served = [(owner, wanted, devices) for (owner, _), wanted, devices in zip(slots, wanteds, chosen, strict=True)]
    return within_amounts(served, counters) and all(
        meets(
            constraint,
            [d for owner, one, found in served if owner == number if constraint.applies_to(one.name) for d in found],
        )
        for number, each in enumerate(claims)
        for constraint in each.constraints
    )  # fmt: skip


def within_amounts(served, counters):
    held, memory = Counter(), Counter()
    taken = [(wanted, device) for _, wanted, devices in served for device in devices]
    for wanted, device in taken:
        held[device.name] += not wanted.admin
        memory[device.name] += 0 if wanted.admin else consumption(device, wanted.capacity).get(MEMORY, 0)
    drawn = sum(
        device.counters.get("c", {}).get("k", 0)
        for device in {d.name: d for _, d in taken}.values()
        if held[device.name]
    )
    return (
        all(tolerated(device.taints, wanted.tolerations) for wanted, device in taken)
        and all(held[device.name] <= 1 or device.shareable for _, device in taken)
        and all(memory[device.name] <= device.capacity[MEMORY].amount for _, device in taken)
        and drawn <= counters["c"]["k"]
    )


def meets(constraint, devices):
    sets = [set(d.attributes[ATTRIBUTE].values) if ATTRIBUTE in d.attributes else None for d in devices]
    if None in sets:
        return False
    if constraint.distinct:
        return sum(map(len, sets)) == len(set().union(*sets))
    return not sets or bool(set.intersection(*sets))


@settings(max_examples=200)
@given(drawn_devices, st.integers(0, 5), claims_)
def test_found_is_what_a_search_through_everything_finds(drawn, total, asked):
    devices, counters = build(drawn, total)
    claims = build_claims(asked)
    found = search(claims, offered(*devices, counters=counters, selects=takes), Steps(1_000_000))
    best = everything(claims, devices, counters)
    assert (found is None) == (best is None)
    if found is not None:
        assert rank(claims, found) == best
        slots = [(number, request) for number, each in enumerate(claims) for request in each.requests]
        wanteds = [request.alternatives[place] for place, (_, request) in zip(best, slots, strict=True)]
        chosen = [
            tuple(pick.device for pick in found if (pick.claim, pick.request) == (number, wanted.name))
            for (number, _), wanted in zip(slots, wanteds, strict=True)
        ]
        assert allowed(claims, slots, wanteds, chosen, counters)
        for wanted, devices_ in zip(wanteds, chosen, strict=True):
            assert wanted.count is None or len(devices_) == wanted.count


@settings(max_examples=100)
@given(drawn_devices, st.integers(0, 5), claims_)
def test_a_search_leaves_the_books_as_it_found_them(drawn, total, asked):
    devices, counters = build(drawn, total)
    offer = offered(*devices, counters=counters, selects=takes)
    first = search(build_claims(asked), offer, Steps(1_000_000))
    assert search(build_claims(asked), offer, Steps(1_000_000)) == first
