"""Ingresses. Source: pkg/apis/networking/validation of Kubernetes v1.36."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.default_classes import newest_default
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import INGRESS_CLASSES
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, load_balancer_addresses, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, spec_of
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_ip
from kubeloop.devcluster.validation.common.object_meta import validate_path_segment
from kubeloop.devcluster.validation.warnings.pod_warnings import load_balancer_status_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    port_name,
    port_number,
    regex_error,
)
from kubeloop.kube.values.ip_addresses import sloppy_ip

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES, _BAD_ENDINGS = ("//", "/./", "/../", "%2f", "%2F"), ("/..", "/.")
_WILDCARD_LABELS = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_ERROR = regex_error(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD_LABELS,
    "*.example.com",
)
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_RELAXED_NAMES = "RelaxedServiceNameValidation"


def validate_ingress(errors: ErrorList, obj: JSON) -> None:
    _validate_ingress_spec(errors, obj["spec"], relaxed_names=errors.gates.enabled(_RELAXED_NAMES))
    named, annotated = obj["spec"].get("ingressClassName"), obj["metadata"].get("annotations", {}).get(_INGRESS_CLASS)
    if annotated is not None and named is not None and annotated != named:
        detail = "must match `ingressClassName` when both are specified"
        errors.invalid(f"annotations.{_INGRESS_CLASS}", annotated, detail)


def validate_ingress_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        relaxed_names = errors.gates.enabled(_RELAXED_NAMES) or _has_relaxed_name(old["spec"])
        _validate_ingress_spec(errors, obj["spec"], relaxed_names=relaxed_names)


def _has_relaxed_name(spec: JSON) -> bool:
    """Return True if a backend is a Service whose name only RelaxedServiceNameValidation allows."""
    paths = [path for rule in spec.get("rules", ()) for path in (rule.get("http") or {}).get("paths") or ()]
    backends = [spec.get("defaultBackend") or {}, *(path.get("backend") or {} for path in paths)]
    names = [backend["service"].get("name", "") for backend in backends if backend.get("service")]
    return any(dns_1035_label(name) and not dns_label(name) for name in names)


def _validate_ingress_spec(errors: ErrorList, spec: JSON, *, relaxed_names: bool) -> None:
    rules = spec.get("rules", ())
    if not rules and spec.get("defaultBackend") is None:
        errors.invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        _validate_backend(errors, "spec.defaultBackend", spec["defaultBackend"], relaxed_names=relaxed_names)
    for i, rule in enumerate(rules):
        where = f"spec.rules[{i}]"
        if host := rule.get("host", ""):
            if sloppy_ip(host) is not None:
                errors.invalid(f"{where}.host", host, "must be a DNS name, not an IP address")
            _validate_host(errors, f"{where}.host", host)
        if rule.get("http") is not None:
            errors.require(f"{where}.http.paths", rule["http"].get("paths"))
            for j, path in enumerate(rule["http"].get("paths") or ()):
                _validate_ingress_path(errors, f"{where}.http.paths[{j}]", path, relaxed_names=relaxed_names)
    for i, tls in enumerate(spec.get("tls", ())):
        for j, host in enumerate(tls.get("hosts", ())):
            _validate_host(errors, f"spec.tls[{i}].hosts[{j}]", host)
        errors.check(f"spec.tls[{i}].secretName", tls.get("secretName") or None, dns_subdomain)
    errors.check("spec.ingressClassName", spec.get("ingressClassName"), dns_subdomain)


def _validate_host(errors: ErrorList, path: str, host: str) -> None:
    if "*" not in host:
        errors.check(path, host, dns_subdomain)
        return
    if len(host) > 253:
        errors.invalid(path, host, "must be no more than 253 characters")
    if not re.fullmatch(_WILDCARD_LABELS, host):
        errors.invalid(path, host, _WILDCARD_ERROR)


def _validate_ingress_path(errors: ErrorList, where: str, path: JSON, *, relaxed_names: bool) -> None:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        errors.required(f"{where}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        errors.not_supported(f"{where}.pathType", kind, _PATH_TYPES)
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        errors.invalid(f"{where}.path", text, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for bad_sequence in _BAD_SEQUENCES:
            if bad_sequence in text:
                errors.invalid(f"{where}.path", text, f"must not contain '{bad_sequence}'")
        for bad_ending in _BAD_ENDINGS:
            if text.endswith(bad_ending):
                errors.invalid(f"{where}.path", text, f"cannot end with '{bad_ending}'")
    _validate_backend(errors, f"{where}.backend", path.get("backend") or {}, relaxed_names=relaxed_names)


def _validate_backend(errors: ErrorList, path: str, backend: JSON, *, relaxed_names: bool) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        validate_typed_reference(errors, f"{path}.resource", resource)
    elif service is None:
        errors.invalid(path, "", "resource or service backend is required")
    else:
        name, port = service.get("name", ""), service.get("port") or {}
        if errors.require(f"{path}.service.name", name):
            check = dns_label if relaxed_names else dns_1035_label
            errors.check(f"{path}.service.name", name, check)
        if port.get("name") and port.get("number"):
            errors.invalid(path, "", "cannot set both port name & port number")
        elif port.get("name"):
            errors.check(f"{path}.service.port.name", port["name"], port_name)
        elif port.get("number"):
            errors.check(f"{path}.service.port.number", port["number"], port_number)
        else:
            errors.required(path, "port name or number is required")


def validate_typed_reference(errors: ErrorList, path: str, reference: JSON) -> None:
    errors.check(f"{path}.apiGroup", reference.get("apiGroup"), dns_subdomain)
    validate_path_segment(errors, f"{path}.kind", reference.get("kind", ""))
    validate_path_segment(errors, f"{path}.name", reference.get("name", ""))


def validate_ingress_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    entries, old_entries = (
        ingress.get("status", {}).get("loadBalancer", {}).get("ingress", ()) for ingress in (obj, old)
    )
    old_addresses = {entry.get("ip", "") for entry in old_entries}
    for i, entry in enumerate(entries):
        where = f"status.loadBalancer.ingress[{i}]"
        if entry.get("ip"):
            validate_ip(errors, f"{where}.ip", entry["ip"], old_addresses)
        if host := entry.get("hostname", ""):
            errors.check(f"{where}.hostname", host, dns_subdomain)
            if sloppy_ip(host) is not None:
                errors.invalid(f"{where}.hostname", host, "must be a DNS name, not an IP address")


def _hosts(obj: JSON, _now: datetime) -> str:
    rules = spec_of(obj).get("rules") or ()
    hosts = [(index, rule["host"]) for index, rule in enumerate(rules) if rule.get("host")][:3]
    text = ",".join(host for _, host in hosts) or "*"
    if len(hosts) == 3 and hosts[-1][0] < len(rules) - 1:  # rules without a host count, too
        text += f" + {len(rules) - 3} more..."
    return text


def _ports(obj: JSON, _now: datetime) -> str:
    return "80, 443" if spec_of(obj).get("tls") else "80"


def _warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    annotated = _INGRESS_CLASS in obj["metadata"].get("annotations", {})
    if old is None and annotated and obj["spec"].get("ingressClassName") is None:
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _admit_create(chain: AdmissionChain, _context: RequestContext, ingress: JSON) -> None:
    if "DefaultIngressClass" in chain.enabled:
        set_default_ingress_class(chain.store, ingress)


_DEFAULT_INGRESS_CLASS = "ingressclass.kubernetes.io/is-default-class"


def set_default_ingress_class(store: ObjectStore, ingress: JSON) -> None:
    if "ingressClassName" in ingress.get("spec", {}) or _INGRESS_CLASS in ingress["metadata"].get("annotations", {}):
        return
    if default := newest_default(store, INGRESS_CLASSES, (_DEFAULT_INGRESS_CLASS,)):
        ingress.setdefault("spec", {})["ingressClassName"] = default


STRATEGY = Strategy(
    validate=validate_ingress,
    validate_update=validate_ingress_update,
    validate_subresources={"status": validate_ingress_status_update},
    update_steps="uws",
    warnings=_warnings,
    status_warnings=load_balancer_status_warnings,
    admit_create=_admit_create,
    cells=row(text_of("spec.ingressClassName", NONE), _hosts, load_balancer_addresses, _ports, AGE),
)
