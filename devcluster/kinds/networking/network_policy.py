"""NetworkPolicies. Source: pkg/apis/networking/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.printers.columns import AGE, row, selector_of
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_label_selector
from kubeloop.devcluster.validation.common.ip_addresses import cidr_warning, sloppy_network, validate_cidr
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import port_name, port_number


def validate_network_policy(errors: ErrorList, obj: JSON, old: JSON | None = None) -> None:
    spec, known_ranges = obj["spec"], set(_policy_ranges(old["spec"])) if old is not None else ()
    validate_label_selector(errors, "spec.podSelector", spec.get("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(direction, ())):
            where = f"spec.{direction}[{i}]"
            for j, port in enumerate(rule.get("ports", ())):
                _validate_policy_port(errors, f"{where}.ports[{j}]", port)
            for j, peer in enumerate(rule.get(peers, ())):
                _validate_policy_peer(errors, f"{where}.{peers}[{j}]", peer, known_ranges)
    types = spec.get("policyTypes", ())
    if len(types) > 2:
        errors.invalid("spec.policyTypes", list(types), "may not specify more than two policyTypes")
        return
    for i, type_ in enumerate(types):
        errors.one_of(f"spec.policyTypes[{i}]", type_, ("Ingress", "Egress"))


def _policy_ranges(spec: JSON) -> Iterator[str]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction, ()):
            for peer in rule.get(peers, ()):
                if "ipBlock" in peer:
                    yield peer["ipBlock"].get("cidr", "")
                    yield from peer["ipBlock"].get("except", ())


def _validate_policy_port(errors: ErrorList, where: str, port_rule: JSON) -> None:
    protocol, port, last = port_rule.get("protocol"), port_rule.get("port"), port_rule.get("endPort")
    errors.one_of(f"{where}.protocol", protocol, ("TCP", "UDP", "SCTP"))
    if port is None:
        if last is not None:
            errors.invalid(f"{where}.endPort", last, "may not be specified when `port` is not specified")
    elif type(port) is int:
        errors.check(f"{where}.port", port, port_number)
        if last is not None:
            if last < port:
                errors.invalid(f"{where}.endPort", port, "must be greater than or equal to `port`")
            errors.check(f"{where}.endPort", last, port_number)
    else:
        if last is not None:
            errors.invalid(f"{where}.endPort", last, "may not be specified when `port` is non-numeric")
        errors.check(f"{where}.port", port, port_name)


def _validate_policy_peer(errors: ErrorList, where: str, peer: JSON, known_ranges: Collection[str]) -> None:
    for name in ("podSelector", "namespaceSelector"):
        if name in peer:
            validate_label_selector(errors, f"{where}.{name}", peer[name])
    if "ipBlock" in peer:
        _validate_ip_block(errors, f"{where}.ipBlock", peer["ipBlock"], known_ranges)
    kinds = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if name in peer]
    if errors.require(where, kinds, "must specify a peer") and len(kinds) > 1 and "ipBlock" in peer:
        errors.forbidden(where, "may not specify both ipBlock and another peer")


def _validate_ip_block(errors: ErrorList, path: str, block: JSON, stored: Collection[str]) -> None:
    whole = block.get("cidr", "")
    if not errors.require(f"{path}.cidr", whole):
        return
    validate_cidr(errors, f"{path}.cidr", whole, stored)
    network = sloppy_network(whole)
    if network is None:
        return
    for i, excluded in enumerate(block.get("except", ())):
        where = f"{path}.except[{i}]"
        validate_cidr(errors, where, excluded, stored)
        part = sloppy_network(excluded)
        if part is None:
            continue
        inside = part.version == network.version and part.network_address in network
        if not inside or network.prefixlen >= part.prefixlen:
            errors.invalid(where, excluded, "must be a strict subset of `cidr`")


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(obj["spec"].get(direction, ())):
            for j, peer in enumerate(rule.get(peers, ())):
                block = peer.get("ipBlock")
                if block is None:
                    continue
                path = f"spec.{direction}[{i}].{peers}[{j}].ipBlock"
                yield cidr_warning(f"{path}.cidr", block.get("cidr", ""))
                for k, excluded in enumerate(block.get("except", ())):
                    yield cidr_warning(f"{path}.except[{k}]", excluded)


STRATEGY = Strategy(
    default=_default,
    generation_as_sent=True,
    validate=validate_network_policy,
    validate_update=update_as_create(validate_network_policy, with_stored=True),
    warnings=_warnings,
    cells=row(selector_of("spec.podSelector"), AGE),
)
