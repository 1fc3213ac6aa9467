"""CPU and memory, counted as Kubernetes does."""

from tests.wire.pod.pods import GI, containers, needs, pod
from ullage.model.resources import MILLI
from ullage.wire.pod import compose_request
from ullage.wire.pod.containers import bound_spec, pod_amount


def cpu_and_memory(spec):
    requirement = compose_request(pod(spec=spec)).requirement
    return requirement.cpu_milli, requirement.memory_bytes


def test_requests_of_containers_are_added():
    assert cpu_and_memory(containers(needs("500m", "1Gi"), needs(2, "500M"))) == (2500, GI + 500_000_000)


def test_a_container_without_a_request_requests_its_limit():
    assert cpu_and_memory(containers({"limits": {"cpu": "1"}, "requests": {"memory": "1k"}})) == (1000, 1000)


def test_init_containers_run_before_the_others():
    spec = {**containers(needs("1", "1Gi")), **containers(needs("3", "1Mi"), needs("2"), kind="initContainers")}
    assert cpu_and_memory(spec) == (3000, GI)


def test_sidecars_keep_their_cards():
    spec = containers(needs("1"))
    spec["initContainers"] = [
        {"resources": needs("4")},
        {"resources": needs("2"), "restartPolicy": "Always"},
        {"resources": needs("3")},
        {"resources": needs("1"), "restartPolicy": "Always"},
    ]
    assert cpu_and_memory(spec) == (5000, 0)
    spec["containers"] = [{"resources": needs("4")}]
    assert cpu_and_memory(spec) == (7000, 0)


def test_the_overhead_is_added_and_a_pod_may_state_its_own_sum():
    spec = {**containers(needs("1", "1k")), "overhead": {"cpu": "250m", "memory": "24"}}
    assert cpu_and_memory(spec) == (1250, 1024)
    assert cpu_and_memory({**spec, "resources": needs("5")}) == (5250, 1024)
    assert cpu_and_memory({"resources": needs("5", kind="limits")}) == (5000, 0)


def test_a_pod_resized_in_place_counts_with_the_larger_amounts_until_it_is_done():
    def cpu(asked, given, allocated, *conditions):
        spec = {"containers": [{"name": "c", "resources": needs(asked)}, {"name": "d", "resources": needs("1")}]}
        status = {"name": "c", "resources": needs(given), "allocatedResources": {"cpu": allocated}}
        found = {"spec": spec, "status": {"containerStatuses": [status], "conditions": list(conditions)}}
        return pod_amount(bound_spec(found), "cpu", MILLI)

    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert cpu("2", "2000m", "2") == 3000
    assert cpu("4", "2", "2") == 5000  # asked, and not given yet
    assert cpu("1", "2", "1") == 3000  # given, and not taken back yet
    assert cpu("1", "1", "3") == 4000
    assert cpu("9", "2", "2", infeasible) == 3000
    assert cpu("9", "2", "2", {**infeasible, "reason": "Deferred"}) == 10_000


def test_sidecars_are_resized_too_and_containers_without_status_count_as_requested():
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": needs("1")}
    spec = {**containers(needs("2", "1Gi")), "initContainers": [sidecar]}
    status = {"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "500m", "memory": "1Gi"}}]}
    asked = bound_spec({"spec": spec, "status": status})
    assert (pod_amount(asked, "cpu", MILLI), pod_amount(asked, "memory", 1)) == (3000, 2 * GI)
    assert bound_spec({"spec": spec}) is spec
