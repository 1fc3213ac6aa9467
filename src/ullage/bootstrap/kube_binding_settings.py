"""The section `[kube.bindings]` of the settings: bindings of applications to cards, their routes and quotas."""

from __future__ import annotations

from typing import Literal

import msgspec

from ullage.bootstrap.address import Address
from ullage.model.card_figures import model_key
from ullage.model.compute import AppQuota, CardQuota, OwnerQuota
from ullage.model.error import invalid
from ullage.model.resources import MILLI
from ullage.wire.kubernetes_quantity import parse_quantity


class CardQuotaSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most cards of one model that count in a quota. The name of the section is the start of the model's name.

    `cards` and `vram` (as `40Gi`) count as those of an owner.
    """

    cards: int | None = None
    vram: str | None = None

    def of_cards(self, path: str) -> CardQuota:
        """Return the amounts of cards.

        Raises:
            InvalidRequest: an amount is malformed.

        """
        if self.cards is not None and self.cards < 0:
            raise invalid(f"{path}.cards", self.cards, "0 or more are needed")
        return CardQuota(self.cards, _amount(self.vram, f"{path}.vram"))


class AppQuotaSection(CardQuotaSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that an application of an owner may be bound to, in all namespaces; an omitted amount is not limited.

    `models` limits its cards of a model, by the start of the model's name.
    """

    models: dict[str, CardQuotaSection] = {}

    def of_models(self, path: str) -> dict[str, CardQuota]:
        """Return the quotas of models by name; raises as `of_cards`."""
        if unnamed := [name for name in self.models if not model_key(name)]:
            raise invalid(f"{path}.models", unnamed[0], "write the start of the name of a model, such as A100")
        return {name: each.of_cards(f"{path}.models.{name}") for name, each in self.models.items()}

    def of_app(self, path: str) -> AppQuota:
        """Return the section as a value; raises as `of_cards`."""
        found = self.of_cards(path)
        return AppQuota(found.cards, found.vram_bytes, self.of_models(path))


class OwnerQuotaSection(AppQuotaSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that the applications of one owner may be bound to together; an omitted amount is not limited.

    `cards` and `vram` (as `40Gi`) are of cards: memory caps count on a card whose memory is divided, any other card
    counts whole. `cpu` and `memory` are requested of nodes, and checked by preflight. `models` limits the cards of a
    model, by the start of its name in any case. `apps` limits single applications by name, `*` each other one.
    """

    cpu: str | None = None
    memory: str | None = None
    apps: dict[str, AppQuotaSection] = {}

    def quota(self, owner: str) -> OwnerQuota:
        """Return the section as a value.

        Raises:
            InvalidRequest: an amount is malformed.

        """
        path = f"kube.bindings.quotas.{owner}"
        found = self.of_cards(path)
        return OwnerQuota(
            found.cards,
            found.vram_bytes,
            _amount(self.cpu, f"{path}.cpu", units=MILLI),
            _amount(self.memory, f"{path}.memory"),
            models=self.of_models(path),
            apps={name: each.of_app(f"{path}.apps.{name}") for name, each in self.apps.items()},
        )


def _amount(text: str | None, path: str, units: int = 1) -> int | None:
    return None if text is None else parse_quantity(text, path, units=units)


class BindingsSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bindings of applications to cards, and their routes. With `scope` `off` there are none.

    `labelled`: they count in namespaces with the label `ullage.io/gpu-bindings=enabled`; `on`: in all without
    `disabled`. With `strict` a GPUBinding without owner or namespace matches no pod. The ledger is the ConfigMap
    `ledger` in the namespace of the Lease; `allocations` (`NAMESPACE/NAME`) is another ConfigMap with its rows in the
    form of app-service.

    The routes are served at `bind`, over TLS with `cert_file` and `key_file` of `[kube]`, which is needed unless the
    address is of this machine alone. The caller is the user to whom the API server attributes the bearer token,
    without `user_prefix`; users without that prefix are refused, unless they are admins. With `proxy_ca_file` only a
    proxy with a certificate of that CA is served, and states the caller in `X-Remote-User` and `X-Remote-Group`.
    `admins` (full names) and `admin_groups` may act for other users.

    `quotas` has those of owners by name, and under `*` that of each other owner.
    """

    scope: Literal["off", "labelled", "on"] = "off"
    strict: bool = False
    ledger: str = "ullage-bindings"
    allocations: str = ""
    bind: str | None = None
    proxy_ca_file: str | None = None
    user_prefix: str = ""
    admins: tuple[str, ...] = ()
    admin_groups: tuple[str, ...] = ("system:masters",)
    quotas: dict[str, OwnerQuotaSection] = {}

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other.

        Raises:
            InvalidRequest: a wrong address, object name or amount, or routes without bindings.

        """
        if self.bind is not None:
            Address.parse(self.bind, "kube.bindings.bind")
            if self.scope == "off":
                raise invalid("kube.bindings.bind", self.bind, "there are no bindings; set kube.bindings.scope")
        if self.allocations and not all(self.allocations.partition("/")):
            raise invalid("kube.bindings.allocations", self.allocations, "write NAMESPACE/NAME of a ConfigMap")
        self.owner_quotas  # noqa: B018 - invalid amounts stop the start

    @property
    def owner_quotas(self) -> dict[str, OwnerQuota]:
        """Return the quotas of owners by name."""
        return {owner: section.quota(owner) for owner, section in self.quotas.items()}
