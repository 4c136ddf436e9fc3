"""Pods and pod templates. Source: pkg/apis/core/validation/validation.go."""

from __future__ import annotations

import re
from typing import Any

from kubeloop.devcluster.validation import containers as of_containers
from kubeloop.devcluster.validation import scheduling, volumes
from kubeloop.devcluster.validation.field import (
    Errors,
    dns_label,
    dns_subdomain,
    ip,
    labels,
    qualified_name,
)
from kubeloop.devcluster.validation.metadata import annotation_map

JSON = dict[str, Any]
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def pod_spec(errors: Errors, path: str, spec: JSON, *, in_pod: bool) -> None:
    """A pod's spec, or a template's (in_pod False)."""
    mountable = volumes.volumes(errors, f"{path}.volumes", spec)
    of_containers.containers(errors, f"{path}.containers", spec, mountable)
    if "initContainers" in spec:
        of_containers.init_containers(errors, f"{path}.initContainers", spec, mountable)
    if "ephemeralContainers" in spec:
        of_containers.ephemeral_containers(errors, f"{path}.ephemeralContainers", spec, mountable)
    if spec.get("hostNetwork"):
        _host_network(errors, path, spec, in_pod=in_pod)
    restart_policy = spec.get("restartPolicy", "")
    if restart_policy not in ("Always", "OnFailure", "Never"):
        errors.not_supported(f"{path}.restartPolicy", restart_policy, ("Always", "OnFailure", "Never"))
    dns_policy = spec.get("dnsPolicy", "")
    if dns_policy not in _DNS_POLICIES:
        errors.not_supported(f"{path}.dnsPolicy", dns_policy, _DNS_POLICIES)
    labels(errors, f"{path}.nodeSelector", spec.get("nodeSelector"))
    if spec.get("securityContext"):
        _security_context(errors, path, spec)
    if spec.get("affinity"):
        scheduling.affinity(errors, f"{path}.affinity", spec["affinity"])
    _dns_config(errors, f"{path}.dnsConfig", spec)
    for i, gate in enumerate(spec.get("readinessGates", ())):
        name = gate.get("conditionType", "")
        errors.invalid_each(f"{path}.readinessGates[{i}].conditionType", name, qualified_name(name))
    _scheduling_gates(errors, f"{path}.schedulingGates", spec)
    if "topologySpreadConstraints" in spec:
        scheduling.topology_spread(errors, f"{path}.topologySpreadConstraints", spec["topologySpreadConstraints"])
    for name, check in (("serviceAccountName", dns_subdomain), ("nodeName", dns_subdomain)):
        if spec.get(name):
            errors.invalid_each(f"{path}.{name}", spec[name], check(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 0x7FFFFFFF:
        errors.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            errors.invalid_each(f"{path}.{name}", spec[name], dns_label(spec[name]))
    if spec.get("tolerations"):
        scheduling.tolerations(errors, f"{path}.tolerations", spec["tolerations"])
    for i, alias in enumerate(spec.get("hostAliases", ())):
        ip(errors, f"{path}.hostAliases[{i}].ip", alias.get("ip", ""))
        for j, name in enumerate(alias.get("hostnames", ())):
            errors.invalid_each(f"{path}.hostAliases[{i}].hostnames[{j}]", name, dns_subdomain(name))
    for name in ("priorityClassName", "runtimeClassName"):
        if spec.get(name):
            errors.invalid_each(f"{path}.{name}", spec[name], dns_subdomain(spec[name]))
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in ("PreemptLowerPriority", "Never"):
        errors.not_supported(f"{path}.preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))
    if spec.get("overhead"):
        of_containers.resource_requirements(errors, f"{path}.overhead", {"limits": spec["overhead"]})
    if "os" in spec and spec["os"].get("name") not in ("linux", "windows"):
        errors.not_supported(f"{path}.os.name", spec["os"].get("name", ""), ("linux", "windows"))


def _host_network(errors: Errors, path: str, spec: JSON, *, in_pod: bool) -> None:
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            if (in_pod or host) and host != port.get("containerPort", 0):
                wrong = "must match `containerPort` when `hostNetwork` is true"
                errors.invalid(f"{path}.containers[{i}].ports[{j}].hostPort", host, wrong)


def _security_context(errors: Errors, path: str, spec: JSON) -> None:
    context, where = spec["securityContext"], f"{path}.securityContext"
    group = context.get("fsGroup")
    if group is not None and not 0 <= group <= 0x7FFFFFFF:
        errors.invalid(f"{where}.fsGroup", group, "must be between 0 and 2147483647, inclusive")
    of_containers.user_and_group(errors, where, context)
    for i, each in enumerate(context.get("supplementalGroups", ())):
        if not 0 <= each <= 0x7FFFFFFF:
            errors.invalid(f"{where}.supplementalGroups[{i}]", each, "must be between 0 and 2147483647, inclusive")
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        errors.invalid(
            f"{path}.shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled"
        )


def _dns_config(errors: Errors, path: str, spec: JSON) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            wrong = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.required(f"{path}.nameservers", wrong)
            return
    if not config:
        return
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    if len(servers) > 3:
        errors.invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers")
    for i, each in enumerate(servers):
        ip(errors, f"{path}.nameservers[{i}]", each)
    if len(searches) > 32:
        errors.invalid(f"{path}.searches", searches, "must not have more than 32 search paths")
    for i, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            errors.required(f"{path}.options[{i}]", "must not be empty")


def _scheduling_gates(errors: Errors, path: str, spec: JSON) -> None:
    seen = set()
    for i, gate in enumerate(spec.get("schedulingGates", ())):
        name = gate.get("name", "")
        errors.invalid_each(f"{path}[{i}]", name, qualified_name(name))
        if name in seen:
            errors.duplicate(f"{path}[{i}]", name)
        seen.add(name)


def pod_annotations(errors: Errors, path: str, metadata: JSON) -> None:
    cost = metadata.get("annotations", {}).get(_DELETION_COST)
    if cost is not None and not (re.fullmatch("0|-?[1-9][0-9]*", cost) and -0x80000000 <= int(cost) <= 0x7FFFFFFF):
        errors.invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer")


def pod_metadata_and_spec(errors: Errors, pod: JSON) -> None:
    """What ValidatePodCreate and ValidatePodUpdate share, without metadata's own rules."""
    spec = pod["spec"]
    if pod["metadata"].get("annotations"):
        pod_annotations(errors, "metadata.annotations", pod["metadata"])
    pod_spec(errors, "spec", spec, in_pod=True)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes", ())):
            for j, source in enumerate(volume.get("projected", {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    where = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    errors.forbidden(where, "must not be specified when serviceAccountName is not set")
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            image = container.get("image", "")
            if image != image.strip():
                wrong = "must not have leading or trailing whitespace"
                errors.invalid(f"spec.{kind}[{i}].image", image, wrong)


def pod_create(errors: Errors, pod: JSON) -> None:
    spec = pod["spec"]
    pod_metadata_and_spec(errors, pod)
    if spec.get("ephemeralContainers"):
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def pod_template_spec(errors: Errors, path: str, template: JSON) -> None:
    """ValidatePodTemplateSpec; its paths of labels and annotations leave out "metadata", as Kubernetes' do."""
    metadata = template.get("metadata", {})
    labels(errors, f"{path}.labels", metadata.get("labels"))
    annotation_map(errors, f"{path}.annotations", metadata.get("annotations"))
    if metadata.get("annotations"):
        pod_annotations(errors, f"{path}.annotations", metadata)
    pod_spec(errors, f"{path}.spec", template.get("spec", {}), in_pod=False)
    if template.get("spec", {}).get("ephemeralContainers"):
        errors.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
