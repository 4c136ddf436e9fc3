"""Warnings about kinds that hold no pods: what is allowed and unwise. Source: WarningsOnCreate and WarningsOnUpdate of
the strategies under pkg/registry of Kubernetes v1.36."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.devcluster.validation.field import cidr_warning, ip_warning

JSON = dict[str, Any]
Told = Callable[[JSON, JSON | None], Iterator[str]]

_MANAGED_BY, _SLICE_MANAGED_BY = "endpoints.kubernetes.io/managed-by", "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_TOKENS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def _endpoints(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("labels", {}).get(_MANAGED_BY) == "endpoint-controller":
        return
    for i, subset in enumerate(obj.get("subsets", ())):
        for name in ("addresses", "notReadyAddresses"):
            for j, each in enumerate(subset.get(name, ())):
                yield ip_warning(f"subsets[{i}].{name}[{j}].ip", each.get("ip", ""))


def _endpoint_slice(obj: JSON, old: JSON | None) -> Iterator[str]:
    if old is None and obj.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if obj["metadata"].get("labels", {}).get(_SLICE_MANAGED_BY) in _SLICE_CONTROLLERS:
        return
    for i, endpoint in enumerate(obj.get("endpoints") or ()):
        for j, address in enumerate(endpoint.get("addresses") or ()):
            yield ip_warning(f"endpoints[{i}].addresses[{j}]", address)


def _ingress(obj: JSON, old: JSON | None) -> Iterator[str]:
    annotated = _INGRESS_CLASS in obj["metadata"].get("annotations", {})
    if old is None and annotated and obj["spec"].get("ingressClassName") is None:
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _network_policy(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(obj["spec"].get(direction, ())):
            for j, peer in enumerate(rule.get(peers, ())):
                block = peer.get("ipBlock")
                if block is None:
                    continue
                path = f"spec.{direction}[{i}].{peers}[{j}].ipBlock"
                yield cidr_warning(f"{path}.cidr", block.get("cidr", ""))
                for k, each in enumerate(block.get("except", ())):
                    yield cidr_warning(f"{path}.except[{k}]", each)


def _csi_driver(obj: JSON, old: JSON | None) -> Iterator[str]:
    requests = obj["spec"].get("tokenRequests")
    changed = old is None or requests != old["spec"].get("tokenRequests")
    if changed and requests and obj["spec"].get("serviceAccountTokenInSecrets") is None:
        yield _TOKENS


def _secret(obj: JSON, _old: JSON | None) -> Iterator[str]:
    """A key pair without a certificate or key in it; whether the two belong together is not looked at."""
    if obj.get("type") != "kubernetes.io/tls":
        return
    data = obj.get("data", {})
    certificate, key = (b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key"))
    for told, text, marks in (("certificate", certificate, (b"CERTIFICATE",)), ("key", key, (b"PRIVATE KEY",))):
        if b"-----BEGIN " not in text:
            yield f"tls: failed to find any PEM data in {told} input"
            return
        if not any(mark in text for mark in marks):
            return


_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


def _service_account(obj: JSON, old: JSON | None) -> Iterator[str]:
    before = old["metadata"].get("annotations", {}) if old is not None else {}
    if _MOUNTABLE in obj["metadata"].get("annotations", {}) and _MOUNTABLE not in before:
        told = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE}]: {told}"


def _node(obj: JSON, _old: JSON | None) -> Iterator[str]:
    spec = obj.get("spec", {})
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


_STATIC = ".static.k8s.io"


def _policy(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("name", "").endswith(_STATIC):
        told = "are reserved for static manifest-based configurations and cannot be managed via the API"
        yield f'metadata.name: names ending with "{_STATIC}" {told}'


_WARNINGS: dict[tuple[str, str], Told] = {
    ("", "Endpoints"): _endpoints,
    ("", "Node"): _node,
    ("", "Secret"): _secret,
    ("", "ServiceAccount"): _service_account,
    **{
        ("admissionregistration.k8s.io", f"{way}{kind}"): _policy
        for way in ("Mutating", "Validating")
        for kind in ("AdmissionPolicy", "AdmissionPolicyBinding", "WebhookConfiguration")
    },
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}


def warnings_of_kind(key: tuple[str, str], obj: JSON, old: JSON | None) -> list[str]:
    """What is told of an object of this group and kind, as it is stored now."""
    told = _WARNINGS.get(key)
    return [each for each in told(obj, old) if each] if told is not None else []
