"""Requests of kube-scheduler to its extender, and the responses: filter, prioritize, preempt and bind.

The keys around pods and nodes are names of Go fields, which Go reads in any case and writes with a capital; so do we.
Pods and nodes themselves are plain documents. A reader raises `InvalidRequest`, which is reported as `Error` in an
ordinary response. The exception is a missing body (`EmptyBody`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from ullage.model.error import InvalidRequest, invalid
from ullage.wire.decoding import ANYTHING, decode_document
from ullage.wire.document import Document, mapping, named, sequence, text

MAX_BODY = 8 * 2**20
"""Bytes of the largest body unless the caller sets another limit; 5,000 names are 160 kB."""

BEST_SCORE = 10
"""Scores of nodes are whole numbers from 0 to this number."""

T = TypeVar("T", bound=msgspec.Struct)


class EmptyBody(InvalidRequest):
    """The body is empty: the only error that is not an ordinary response (HTTP 400)."""

    code = "empty-body"


# --- requests ---


class _Request(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    """The base of requests. Keys in another case are matched in a second pass; keys of later versions are ignored."""


class ExtenderArgs(_Request, frozen=True):
    """A pod and the offered nodes: by name, or in full, which is a simulation that changes nothing."""

    pod: dict[str, Any]
    nodes: dict[str, Any] | None = None
    node_names: list[str] | None = None

    @property
    def simulated(self) -> bool:
        """Whether the nodes came in full, as from an autoscaler: the request must change nothing."""
        return self.nodes is not None

    def offered(self) -> list[str]:
        """Return the names of the nodes in their order."""
        if self.nodes is not None:
            return [_name_of(node, position) for position, node in enumerate(_items(self.nodes))]
        if self.node_names is None:
            raise invalid("NodeNames", None, "offer nodes: NodeNames, or Nodes in full")
        return self.node_names

    def described(self) -> dict[str, Document]:
        """Return the nodes that came in full, by name; none where only names came."""
        items = [] if self.nodes is None else _items(self.nodes)
        return {_name_of(node, position): mapping(node, "node") for position, node in enumerate(items)}

    def result(self, names: list[str], why: dict[str, str], never: dict[str, str]) -> FilterResult:
        """Return the response in the form of the request; `names` are the nodes that passed.

        `why` has the reasons of the other nodes, `never` of those where preemption would not help.
        """
        if self.nodes is None:
            return FilterResult(None, names, why, never)
        items, chosen = _items(self.nodes), set(names)
        left = [node for position, node in enumerate(items) if _name_of(node, position) in chosen]
        return FilterResult({**self.nodes, "items": left}, None, why, never)


class BindArgs(_Request, frozen=True):
    """A pod, by its identity, and the node to which it is to be bound."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class MetaPod(_Request, frozen=True, rename={"uid": "UID"}):
    """A pod by its identity."""

    uid: str


class Victims(_Request, frozen=True, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    """The pods that would be evicted from a node, and how many disruption budgets that would violate."""

    pods: list[MetaPod] | None = None
    violations: int = 0

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(pod.uid for pod in self.pods or ())


class PreemptionArgs(msgspec.Struct, frozen=True):
    """A pod that fits nowhere, and the victims per node."""

    pod: dict[str, Any]
    victims: dict[str, Victims]

    @property
    def nominated(self) -> str:
        """The node on which pods were evicted for this pod before; "" if there is none."""
        return text(mapping(self.pod.get("status"), "status").get("nominatedNodeName"))


# --- responses ---


class _Response(msgspec.Struct, frozen=True, rename="pascal"):
    """The base of responses."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class FilterResult(_Response, frozen=True):
    """The nodes that pass, and the reason for each other one; with an `error` nothing else counts."""

    nodes: dict[str, Any] | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class BindResult(_Response, frozen=True):
    """The result of a bind; "" as `error` is success."""

    error: str = ""


class PreemptionResult(_Response, frozen=True):
    """The nodes of the request on which eviction of these victims would help."""

    node_name_to_meta_victims: dict[str, Victims] = {}

    @classmethod
    def of(cls, victims: Mapping[str, tuple[Iterable[str], int]]) -> PreemptionResult:
        """Return the response with the uids of the victims and the number of violated budgets per node."""
        return cls({node: Victims([MetaPod(uid) for uid in uids], broken) for node, (uids, broken) in victims.items()})


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    host: str
    score: int


def encode_scores(scores: Mapping[str, int]) -> bytes:
    """Return the response to prioritize: each node with its score.

    Raises:
        InvalidRequest: a score is not from 0 to `BEST_SCORE`; it would outweigh those of other extenders.

    """
    for wrong in {*scores.values()}.difference(range(BEST_SCORE + 1)):
        raise invalid("Score", wrong, f"a whole number from 0 to {BEST_SCORE} is needed")
    return msgspec.json.encode(list(map(_HostPriority, scores, scores.values())))


# --- reading ---


def read_args(body: bytes, *, most: int = MAX_BODY) -> ExtenderArgs:
    """Read the request of filter and prioritize.

    Raises:
        EmptyBody: there is no body.
        InvalidRequest: it is longer than `most` bytes, broken, or has no pod.

    """
    return _read(body, ExtenderArgs, most)


def read_bind(body: bytes, *, most: int = MAX_BODY) -> BindArgs:
    """Read the request of bind.

    Raises:
        EmptyBody: there is no body.
        InvalidRequest: it is longer than `most` bytes or broken, or a field is empty.

    """
    args = _read(body, BindArgs, most)
    for field, value in msgspec.to_builtins(args).items():
        if not value:
            raise invalid(field, value, "it is needed")
    return args


def read_preemption(body: bytes, *, most: int = MAX_BODY) -> PreemptionArgs:
    """Read the request of preempt, in either form of victims.

    Raises:
        EmptyBody: there is no body.
        InvalidRequest: it is longer than `most` bytes, broken, or has no pod.

    """
    envelope = _cased(_parse(body, most), ("Pod", "NodeNameToVictims", "NodeNameToMetaVictims"))
    whole, meta = (
        mapping(envelope.get(f"NodeNameTo{form}"), f"NodeNameTo{form}") for form in ("Victims", "MetaVictims")
    )
    victims = {text(node): _victims(each, meta=bool(meta)) for node, each in (meta or whole).items()}
    return _convert({"pod": envelope.get("Pod"), "victims": victims}, PreemptionArgs)


def _victims(victims: object, *, meta: bool) -> dict[str, Any]:
    """Return victims in the short form."""
    found = _cased(victims, ("Pods", "NumPDBViolations"))
    pods = found.get("Pods")
    if isinstance(pods, list):
        found["Pods"] = [_cased(pod, ("UID",)) if meta else {"UID": _uid_of(pod)} for pod in pods]
    return found


def _uid_of(pod: object) -> object:
    return mapping(mapping(pod, "Pods").get("metadata"), "Pods.metadata").get("uid")


def _read(body: bytes, kind: type[T], most: int) -> T:
    if len(body) <= most:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found: T = _DECODERS[kind].decode(body)
            return found
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    return _convert(_cased(_parse(body, most), names), kind)


_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (ExtenderArgs, BindArgs)
}


def _parse(body: bytes, most: int) -> object:
    if not body.strip():
        raise EmptyBody("body: it is empty; send JSON", field="body")
    return decode_document(body, ANYTHING, most)


def _convert(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"body: {error}", field="body") from None


def _cased(value: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the values that a mapping has for these keys in any case; null is the same as absent."""
    known = {name.lower(): name for name in names}
    found: dict[str, Any] = {}
    for key, item in mapping(value, "body").items():
        name = known.get(key.lower())
        if name in found:
            raise invalid(name or key, key, "it is there in two spellings; keep one")
        if name is not None and item is not None:
            found[name] = item
    return found


def _items(nodes: Mapping[str, Any]) -> Sequence[Any]:
    return sequence(nodes.get("items"), "Nodes.items")


def _name_of(node: object, position: int) -> str:
    path = f"Nodes.items[{position}]"
    return named(mapping(mapping(node, path).get("metadata"), f"{path}.metadata").get("name"), f"{path}.metadata.name")
