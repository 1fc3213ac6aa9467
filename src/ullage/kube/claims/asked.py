"""Pods that wait for their claims: their other requests, and the nodes where allocated claims let them run."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.model.affinity import NODE_NAME, Operator
from ullage.model.claim import Request
from ullage.model.device_claim import DeviceClaim
from ullage.model.resources import MILLI
from ullage.model.topology import ZonePolicy
from ullage.service.claims import ClaimingPod
from ullage.wire.document import Document, mapping
from ullage.wire.pod.affinity import node_affinity
from ullage.wire.pod.card_topology import Tier, demanded_links, demanded_tier
from ullage.wire.pod.containers import pod_amount
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.owner import plain_claim


def claiming_pod(pod: Pod, document: Document, domain: str, request: Request | None) -> ClaimingPod:
    """Return what a waiting pod requests apart from its claims, which are looked up later."""
    spec, keys = mapping(document.get("spec"), "spec"), Keys(document, domain)
    tier = demanded_tier(keys)
    near = ZonePolicy.SINGLE_ZONE if tier is Tier.ONE_ZONE else None
    return ClaimingPod(
        uid=pod.metadata.uid,
        claims=(),
        claim=plain_claim(keys, spec) if request is None else request.claim,
        cpu_milli=pod_amount(spec, "cpu", MILLI),
        memory_bytes=pod_amount(spec, "memory", 1),
        nodes=node_affinity(spec),
        policy=near or keys.choice("numa-policy", ZonePolicy),
        links=demanded_links(keys, tier),
        request=request,
    )


def node_of(claims: Iterable[DeviceClaim]) -> str:
    """Return the only node on which allocated claims can be used; "" if there is more than one."""
    for claim in claims:
        for term in () if claim.allocation is None else claim.allocation.nodes.required:
            for each in term:
                if each.key == NODE_NAME and each.operator is Operator.IN and len(each.values) == 1:
                    return each.values[0]
    return ""


def gone_pod(namespace: str, name: str, uid: str, claim: str) -> Pod:
    """Return a stand-in for a deleted pod of which one claim is known."""
    metadata = f'"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{uid}"}}'
    spec = f'"spec":{{"resourceClaims":[{{"name":"claim","resourceClaimName":"{claim}"}}]}}'
    return PODS.read(f"{{{metadata},{spec}}}".encode())
