"""Warnings about kinds without pod templates.

Source: WarningsOnCreate and WarningsOnUpdate of the strategies under pkg/registry of Kubernetes v1.36.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator

from kubeloop.devcluster.validation.common.ip_addresses import cidr_warning, ip_warning
from kubeloop.devcluster.validation.warnings.shared_warnings import DEPRECATED_NODE_LABELS
from kubeloop.kube.field_errors import quoted
from kubeloop.kube.json_object import JSON
from kubeloop.kube.quantities import parse_quantity

WarningSource = Callable[[JSON, JSON | None], Iterator[str]]

_MANAGED_BY, _SLICE_MANAGED_BY = "endpoints.kubernetes.io/managed-by", "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_TOKENS_IN_SECRETS_UNSET = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def _runtime_class_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for key in sorted((obj.get("scheduling") or {}).get("nodeSelector", ())):
        if key in DEPRECATED_NODE_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[key]}"


def _storage_class_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for i, term in enumerate(obj.get("allowedTopologies", ())):
        for j, match_label_expression in enumerate(term.get("matchLabelExpressions", ())):
            if detail := DEPRECATED_NODE_LABELS.get(match_label_expression.get("key", "")):
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {detail}"


def _storage_capacity_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    topology = obj.get("nodeTopology") or {}
    for i, match_expression in enumerate(topology.get("matchExpressions", ())):
        key = match_expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"nodeTopology.matchExpressions[{i}].key: {key} is {DEPRECATED_NODE_LABELS[key]}"
    for key in sorted(topology.get("matchLabels", ())):
        if key in DEPRECATED_NODE_LABELS:
            yield f"nodeTopology.matchLabels.{key}: {DEPRECATED_NODE_LABELS[key]}"


def _resource_slice_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    driver = obj["spec"].get("driver", "")
    if driver != driver.lower():
        yield f"spec.driver: driver names should be lowercase; {quoted(driver)} contains uppercase characters"


def _resource_quota_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    hard = obj["spec"].get("hard", {}) if old is None else {}
    for name in ("cpu", "memory", "ephemeral-storage"):
        request_name, limit = f"requests.{name}", hard.get(f"limits.{name}")
        if request_name not in hard and name != "ephemeral-storage":
            request_name = name
        if request_name not in hard or limit is None:
            continue
        request, limit_quantity = parse_quantity(hard[request_name]), parse_quantity(limit)
        if request.compare(limit_quantity) > 0:
            amounts = f"({request.canonical()}) should be less than limits.{name} ({limit_quantity.canonical()})"
            yield f"ResourceQuota {request_name} {amounts}"


def _endpoints_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("labels", {}).get(_MANAGED_BY) == "endpoint-controller":
        return
    for i, subset in enumerate(obj.get("subsets", ())):
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name, ())):
                yield ip_warning(f"subsets[{i}].{name}[{j}].ip", address.get("ip", ""))


def _endpoint_slice_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    if old is None and obj.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if obj["metadata"].get("labels", {}).get(_SLICE_MANAGED_BY) in _SLICE_CONTROLLERS:
        return
    for i, endpoint in enumerate(obj.get("endpoints") or ()):
        for j, address in enumerate(endpoint.get("addresses") or ()):
            yield ip_warning(f"endpoints[{i}].addresses[{j}]", address)


def _ingress_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    annotated = _INGRESS_CLASS in obj["metadata"].get("annotations", {})
    if old is None and annotated and obj["spec"].get("ingressClassName") is None:
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _network_policy_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
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


def _csi_driver_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    requests = obj["spec"].get("tokenRequests")
    changed = old is None or requests != old["spec"].get("tokenRequests")
    if changed and requests and obj["spec"].get("serviceAccountTokenInSecrets") is None:
        yield _TOKENS_IN_SECRETS_UNSET


def _secret_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    """Yield a warning about PEM data that is missing in a TLS secret; the pair is not verified."""
    if obj.get("type") != "kubernetes.io/tls":
        return
    data = obj.get("data", {})
    certificate, key = (b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key"))
    for input_name, pem, marks in (("certificate", certificate, (b"CERTIFICATE",)), ("key", key, (b"PRIVATE KEY",))):
        if b"-----BEGIN " not in pem:
            yield f"tls: failed to find any PEM data in {input_name} input"
            return
        if not any(mark in pem for mark in marks):
            return


_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"


def _service_account_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    before = old["metadata"].get("annotations", {}) if old is not None else {}
    if _MOUNTABLE_SECRETS in obj["metadata"].get("annotations", {}) and _MOUNTABLE_SECRETS not in before:
        detail = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE_SECRETS}]: {detail}"


def _node_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    spec = obj.get("spec", {})
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


_STATIC_SUFFIX = ".static.k8s.io"


def _policy_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    if obj["metadata"].get("name", "").endswith(_STATIC_SUFFIX):
        detail = "are reserved for static manifest-based configurations and cannot be managed via the API"
        yield f'metadata.name: names ending with "{_STATIC_SUFFIX}" {detail}'


_WARNINGS: dict[tuple[str, str], WarningSource] = {
    ("", "Endpoints"): _endpoints_warnings,
    ("", "Node"): _node_warnings,
    ("", "ResourceQuota"): _resource_quota_warnings,
    ("", "Secret"): _secret_warnings,
    ("", "ServiceAccount"): _service_account_warnings,
    **{
        ("admissionregistration.k8s.io", f"{prefix}{kind}"): _policy_warnings
        for prefix in ("Mutating", "Validating")
        for kind in ("AdmissionPolicy", "AdmissionPolicyBinding", "WebhookConfiguration")
    },
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice_warnings,
    ("node.k8s.io", "RuntimeClass"): _runtime_class_warnings,
    ("resource.k8s.io", "ResourceSlice"): _resource_slice_warnings,
    ("storage.k8s.io", "CSIStorageCapacity"): _storage_capacity_warnings,
    ("storage.k8s.io", "StorageClass"): _storage_class_warnings,
    ("networking.k8s.io", "Ingress"): _ingress_warnings,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy_warnings,
    ("storage.k8s.io", "CSIDriver"): _csi_driver_warnings,
}


def kind_warnings(key: tuple[str, str], obj: JSON, old: JSON | None) -> list[str]:
    """Return the warnings about an object of this group and kind."""
    source = _WARNINGS.get(key)
    return [warning for warning in source(obj, old) if warning] if source is not None else []


def _load_balancer_status_warnings(status: JSON) -> Iterator[str]:
    for i, entry in enumerate((status.get("loadBalancer") or {}).get("ingress") or ()):
        if entry.get("ip"):
            yield ip_warning(f"status.loadBalancer.ingress[{i}]", entry["ip"])


def _pod_status_warnings(status: JSON) -> Iterator[str]:
    for name in ("podIPs", "hostIPs"):
        for i, address in enumerate(status.get(name) or ()):
            yield ip_warning(f"status.{name}[{i}].ip", address.get("ip", ""))


_STATUS_WARNINGS: dict[tuple[str, str], Callable[[JSON], Iterator[str]]] = {
    ("", "Pod"): _pod_status_warnings,
    ("", "Service"): _load_balancer_status_warnings,
    ("networking.k8s.io", "Ingress"): _load_balancer_status_warnings,
}


def status_warnings(key: tuple[str, str], status: JSON) -> list[str]:
    """Return the warnings about a status that is written through its subresource."""
    source = _STATUS_WARNINGS.get(key)
    return [warning for warning in source(status) if warning] if source is not None else []
