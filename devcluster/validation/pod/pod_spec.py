"""Pods and pod templates. Source: pkg/apis/core/validation/validation.go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_labels
from kubeloop.devcluster.validation.common.ip_addresses import validate_ip
from kubeloop.devcluster.validation.common.object_meta import validate_annotations
from kubeloop.devcluster.validation.pod import containers, scheduling, security_context, volumes
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    validate_profile_annotations,
    validate_profiles_match_fields,
)
from kubeloop.devcluster.validation.pod.stored_features import error_list_for_update
from kubeloop.devcluster.validation.pod.token_source import with_common_token_volume_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import container_totals, is_pod_level
from kubeloop.kube.validation.name_checks import (
    dns_label,
    dns_subdomain,
    dns_subdomain_with_underscores,
    qualified_name,
)
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.quantities import parse_quantity

_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"


def validate_pod_spec(
    errors: ErrorList, path: str, spec: JSON, *, in_pod: bool, pod_name: str = "", old: JSON | None = None
) -> None:
    """Validate a pod's spec, or a template's (in_pod=False). Specs that passed are cached.

    pod_name: claims of ephemeral volumes are named after the pod.
    old: the spec before an update; an update may keep values that a new spec may not have.
    """
    error_list = type(errors) if old is None else error_list_for_update(type(errors), old)
    name = pod_name if any("ephemeral" in volume for volume in spec.get("volumes") or ()) else ""
    encoded = with_common_token_volume_name(spec, msgspec.json.encode(spec))
    if not _is_valid(encoded, in_pod, name, error_list):
        problems = error_list()
        _validate_pod_spec_fields(problems, path, spec, in_pod=in_pod, pod_name=name)
        errors += problems


@lru_cache(maxsize=512)
def _is_valid(spec: bytes, in_pod: bool, pod_name: str, error_list: type[ErrorList]) -> bool:
    """Return True for a valid spec; a ReplicaSet's pods share theirs, and a cache hit takes 1/20 of the validation."""
    problems = error_list()
    _validate_pod_spec_fields(problems, "spec", msgspec.json.decode(spec), in_pod=in_pod, pod_name=pod_name)
    return not problems


def _validate_pod_spec_fields(errors: ErrorList, path: str, spec: JSON, *, in_pod: bool, pod_name: str) -> None:
    """Validate a pod's spec in Kubernetes' order, which is the order of the messages."""
    _validate_contents(errors, path, spec, in_pod=in_pod, pod_name=pod_name)
    if spec.get("hostNetwork"):
        _validate_host_network(errors, path, spec, in_pod=in_pod)
    restart_policy = spec.get("restartPolicy", "")
    errors.one_of(f"{path}.restartPolicy", restart_policy, ("Always", "OnFailure", "Never"))
    dns_policy = spec.get("dnsPolicy", "")
    errors.one_of(f"{path}.dnsPolicy", dns_policy, _DNS_POLICIES)
    if "nodeSelector" in spec:
        validate_labels(errors, f"{path}.nodeSelector", spec["nodeSelector"])
    if spec.get("securityContext") or spec.get("hostPID"):
        security_context.validate_pod_security_context(errors, f"{path}.securityContext", spec)
    if spec.get("affinity"):
        scheduling.validate_affinity(errors, f"{path}.affinity", spec["affinity"])
    if "dnsConfig" in spec or dns_policy == "None":
        _validate_dns_config(errors, f"{path}.dnsConfig", spec)
    for i, gate in enumerate(spec.get("readinessGates", ())):
        name = gate.get("conditionType", "")
        errors.check(f"{path}.readinessGates[{i}].conditionType", name, qualified_name)
    if "schedulingGates" in spec:
        _validate_scheduling_gates(errors, f"{path}.schedulingGates", spec)
    if "topologySpreadConstraints" in spec:
        scheduling.validate_topology_spread(
            errors, f"{path}.topologySpreadConstraints", spec["topologySpreadConstraints"]
        )
    security_context.validate_host_processes(errors, path, spec)
    security_context.validate_host_users(errors, path, spec)
    _validate_names(errors, path, spec)
    scheduling.validate_preemption_policy(errors, f"{path}.preemptionPolicy", spec.get("preemptionPolicy"))
    if spec.get("overhead"):
        containers.validate_resource_requirements(errors, f"{path}.overhead", {"limits": spec["overhead"]})
    if "os" in spec:
        security_context.validate_operating_system(errors, path, spec)
    if (group := spec.get("schedulingGroup")) is not None:
        _validate_scheduling_group(errors, f"{path}.schedulingGroup.podGroupName", group.get("podGroupName"))
    containers.validate_file_reference_volumes(errors, path, spec)


def _validate_contents(errors: ErrorList, path: str, spec: JSON, *, in_pod: bool, pod_name: str) -> None:
    """Validate volumes, resource claims and containers."""
    mountable = {}
    if "volumes" in spec:
        mountable = volumes.validate_volumes(errors, f"{path}.volumes", spec, pod_name, in_pod=in_pod)
    if "resourceClaims" in spec:
        _validate_resource_claims(errors, f"{path}.resourceClaims", spec["resourceClaims"])
    containers.validate_containers(errors, f"{path}.containers", spec, mountable)
    if "initContainers" in spec:
        containers.validate_init_containers(errors, f"{path}.initContainers", spec, mountable)
    if "ephemeralContainers" in spec:
        containers.validate_ephemeral_containers(errors, f"{path}.ephemeralContainers", spec, mountable)
    if "resources" in spec:
        _validate_pod_resources(errors, f"{path}.resources", spec)


def _validate_names(errors: ErrorList, path: str, spec: JSON) -> None:
    """Validate the names that a pod has or refers to, and the fields between them in Kubernetes' order."""
    if "hostnameOverride" in spec:
        _validate_hostname_override(errors, f"{path}.hostnameOverride", spec)
    for name in ("serviceAccountName", "nodeName"):
        errors.check(f"{path}.{name}", spec.get(name) or None, dns_subdomain)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 0x7FFFFFFF:
        errors.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for name in ("hostname", "subdomain"):
        errors.check(f"{path}.{name}", spec.get(name) or None, dns_label)
    if spec.get("tolerations"):
        scheduling.validate_tolerations(errors, f"{path}.tolerations", spec["tolerations"])
    for i, alias in enumerate(spec.get("hostAliases", ())):
        validate_ip(errors, f"{path}.hostAliases[{i}].ip", alias.get("ip", ""))
        for j, name in enumerate(alias.get("hostnames", ())):
            errors.check(f"{path}.hostAliases[{i}].hostnames[{j}]", name, dns_subdomain)
    errors.check(f"{path}.priorityClassName", spec.get("priorityClassName") or None, dns_subdomain)
    errors.check(f"{path}.runtimeClassName", spec.get("runtimeClassName"), dns_subdomain)


def _validate_hostname_override(errors: ErrorList, path: str, spec: JSON) -> None:
    name = spec["hostnameOverride"]
    for other in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(other):
            errors.forbidden(path, f"may not be specified when {other} is true")
    errors.at_most_bytes(path, name, 64)
    errors.check(path, name, dns_subdomain)


def _validate_scheduling_group(errors: ErrorList, path: str, name: str | None) -> None:
    if name is None:
        errors.invalid(path, None, "must specify one of: `podGroupName`")
    else:
        errors.check(path, name, dns_subdomain)


def _validate_host_network(errors: ErrorList, path: str, spec: JSON, *, in_pod: bool) -> None:
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            if (in_pod or host) and host != port.get("containerPort", 0):
                detail = "must match `containerPort` when `hostNetwork` is true"
                errors.invalid(f"{path}.containers[{i}].ports[{j}].hostPort", host, detail)


def _validate_resource_claims(errors: ErrorList, path: str, claims: Sequence[JSON]) -> None:
    names: set[str] = set()
    for i, claim in enumerate(claims):
        where, name = f"{path}[{i}]", claim.get("name", "")
        if not name:
            errors.required(f"{where}.name")
        elif name in names:
            errors.duplicate(f"{where}.name", name)
        else:
            errors.check(f"{where}.name", name, dns_label)
            names.add(name)
        kinds = [kind for kind in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(kind) is not None]
        if len(kinds) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.invalid(where, claim, detail, "core/v1.PodResourceClaim")
        elif not kinds:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.invalid(where, claim, detail, "core/v1.PodResourceClaim")
        for kind in kinds:
            errors.check(f"{where}.{kind}", claim[kind], dns_subdomain)


def _validate_dns_config(errors: ErrorList, path: str, spec: JSON) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.required(f"{path}.nameservers", detail)
            return
    if not config:
        return
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    if len(servers) > 3:
        errors.invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers")
    for i, server in enumerate(servers):
        validate_ip(errors, f"{path}.nameservers[{i}]", server)
    if len(searches) > 32:
        errors.invalid(f"{path}.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errors.invalid(f"{path}.searches", searches, detail)
    for i, search in enumerate(searches):
        if search != ".":  # underscores are allowed here, unlike in other names
            plain = search.removesuffix(".")
            errors.check(f"{path}.searches[{i}]", plain, dns_subdomain_with_underscores)
    for i, option in enumerate(config.get("options", ())):
        errors.require(f"{path}.options[{i}]", option.get("name"), "must not be empty")


def _validate_scheduling_gates(errors: ErrorList, path: str, spec: JSON) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(spec.get("schedulingGates", ())):
        name = gate.get("name", "")
        errors.check(f"{path}[{i}]", name, qualified_name)
        errors.unique(f"{path}[{i}]", name, seen)


def _validate_pod_resource_name(errors: ErrorList, path: str, name: str) -> None:
    name_errors = ErrorList()
    containers.validate_resource_name(name_errors, path, name)
    if not name_errors and not is_pod_level(name):
        name_errors.not_supported(path, name, ("cpu", "hugepages-", "memory"))
    errors.extend(name_errors)


def _validate_pod_resources(errors: ErrorList, path: str, spec: JSON) -> None:
    """Validate pod-level resources."""
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        errors.forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        errors.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    containers.validate_resource_requirements(errors, path, resources, _validate_pod_resource_name)
    containers.validate_container_claims(errors, f"{path}.claims", resources.get("claims") or (), spec)
    for which in ("requests", "limits"):
        pod_amounts = resources.get(which, {})
        for name, amount in sorted(container_totals(spec, which).items()) if pod_amounts else ():
            if (
                name in pod_amounts
                and (which == "requests" or containers.is_huge_pages(name))
                and _above(amount, pod_amounts[name])
            ):
                detail = f"must be greater than or equal to aggregate container {which} of {amount}"
                errors.invalid(f"{path}.{which}[{name}]", pod_amounts[name], detail)
    limits = resources.get("limits", {})
    for i, container in enumerate(spec.get("containers") or ()):
        for name, amount in sorted(container.get("resources", {}).get("limits", {}).items()):
            if name in limits and _above(amount, limits[name]):
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                errors.invalid(f"{path}.containers[{i}][{name}].limits", amount, detail)


def _above(amount: str, limit: str) -> bool:
    return amount != limit and parse_quantity(amount).compare(parse_quantity(limit)) > 0


def _is_deletion_cost(text: str | None) -> bool:
    if text is None:
        return True
    return bool(re.fullmatch("0|-?[1-9][0-9]*|-0+", text)) and -0x80000000 <= parse_integer(text) <= 0x7FFFFFFF


def validate_pod_annotations(
    errors: ErrorList, path: str, metadata: JSON, spec: JSON, old_metadata: JSON | None = None
) -> None:
    """Validate the annotations that have a meaning for the API server."""
    annotations = metadata["annotations"]
    mirror = annotations.get(_MIRROR)
    if mirror is not None and not spec.get("nodeName"):
        errors.invalid(f"{path}[{_MIRROR}]", mirror, "must set spec.nodeName if mirror pod annotation is set")
    if annotations.get(_TOLERATIONS):
        _validate_tolerations_annotation(errors, path, annotations[_TOLERATIONS])
    cost = annotations.get(_DELETION_COST)
    had = (old_metadata or {}).get("annotations", {}).get(_DELETION_COST)
    is_invalid = cost is not None and not _is_deletion_cost(cost) and _is_deletion_cost(had)
    if is_invalid and errors.gates.enabled("PodDeletionCost"):
        errors.invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer")
    validate_profile_annotations(errors, path, annotations, spec)


def _validate_tolerations_annotation(errors: ErrorList, path: str, text: str) -> None:
    """Validate tolerations in the annotation that preceded the field; the annotation has no effect any more."""
    if detail := go_json_error(text.encode()):
        errors.invalid(path, _TOLERATIONS, detail)
        return
    values = msgspec.json.decode(text)
    if type(values) is list and all(type(value) is dict for value in values):
        scheduling.validate_tolerations(errors, f"{path}.{_TOLERATIONS}", values)


def validate_pod_metadata_and_spec(errors: ErrorList, pod: JSON, old: JSON | None = None) -> None:
    """Validate what ValidatePodCreate and ValidatePodUpdate share, without metadata.

    old: the pod before an update. An unchanged spec is not validated again, and the new pod may keep what is invalid in
    the old one.
    """
    spec = pod["spec"]
    if pod["metadata"].get("annotations"):
        validate_pod_annotations(
            errors, "metadata.annotations", pod["metadata"], spec, None if old is None else old["metadata"]
        )
    before = None if old is None else old["spec"]
    if spec == before:
        return
    validate_pod_spec(errors, "spec", spec, in_pod=True, pod_name=pod["metadata"].get("name", ""), old=before)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes", ())):
            for j, source in enumerate(volume.get("projected", {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    where = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    errors.forbidden(where, "must not be specified when serviceAccountName is not set")
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            validate_image_whitespace(errors, f"spec.{kind}[{i}].image", container.get("image", ""))


def validate_image_whitespace(errors: ErrorList, path: str, image: str) -> None:
    if image != image.strip():
        errors.invalid(path, image, containers.IMAGE_WHITESPACE)


def validate_pod(errors: ErrorList, pod: JSON) -> None:
    spec = pod["spec"]
    validate_pod_metadata_and_spec(errors, pod)
    if spec.get("ephemeralContainers"):
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    if pod["metadata"].get("annotations"):
        validate_profiles_match_fields(errors, "spec", pod["metadata"]["annotations"], spec)


def template_before(old: JSON | None) -> JSON | None:
    """Return the pod template of a workload before an update; an update may keep what is invalid in it."""
    return None if old is None else old["spec"].get("template", {})


def validate_pod_template_metadata(errors: ErrorList, path: str, template: JSON, old: JSON | None = None) -> None:
    """Validate a template's labels and annotations; their paths leave out "metadata", as in Kubernetes."""
    metadata = template.get("metadata", {})
    validate_labels(errors, f"{path}.labels", metadata.get("labels"))
    validate_annotations(errors, f"{path}.annotations", metadata.get("annotations"))
    if metadata.get("annotations"):
        before = None if old is None else old.get("metadata", {})
        validate_pod_annotations(errors, f"{path}.annotations", metadata, template.get("spec", {}), before)


def validate_pod_template_spec(errors: ErrorList, path: str, template: JSON, old: JSON | None = None) -> None:
    """Validate a pod template (ValidatePodTemplateSpec); an update may keep what is invalid in `old`."""
    spec = template.get("spec", {})
    validate_pod_template_metadata(errors, path, template, old)
    validate_pod_spec(errors, f"{path}.spec", spec, in_pod=False, old=None if old is None else old.get("spec", {}))
    if template.get("metadata", {}).get("annotations"):
        validate_profiles_match_fields(errors, f"{path}.spec", template["metadata"]["annotations"], spec)
    if spec.get("ephemeralContainers"):
        errors.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
