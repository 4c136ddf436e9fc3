"""PodSecurity: pod security levels that labels of a namespace require.

    enforce   pods that violate the level are rejected
    warn      writes of such pods, or of templates for them, return warnings; default: the enforced level
    audit     violations are annotations of audit events

Without labels every pod is allowed, and there are no exemptions: the default configuration. `pod_security_checks` holds
the rules of the levels. Source: pod-security-admission/{api,admission} of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, PODS

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.pod_security_checks import Violation
    from kubeloop.devcluster.api.audit_record import AuditRecord

_LEVELS = ("privileged", "baseline", "restricted")
"""In ascending order of strictness."""
_LABEL_PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
_MAX_INT64 = (1 << 63) - 1
_MAX_PODS_CHECKED = 3000


class _Standard(NamedTuple):
    """A level at version 1.`minor` of the standards; None: the latest."""

    level: str = "privileged"
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:latest" if self.minor is None else f"{self.level}:v1.{self.minor}"

    def is_stricter_than(self, other: _Standard) -> bool:
        return _LEVELS.index(self.level) > _LEVELS.index(other.level)


class _Policy(NamedTuple):
    enforce: _Standard = _Standard()
    audit: _Standard = _Standard()
    warn: _Standard = _Standard()


# --- namespaces -------------------------------------------------------------------------------------------------------


def check_new_namespace(namespace: JSON) -> None:
    """Raise StatusError 422 for invalid pod security labels of a new namespace."""
    _, problems = _parse_labels(namespace["metadata"].get("labels", {}))
    if problems:
        raise errors.invalid("", "Namespace", namespace["metadata"].get("name", ""), problems)


def check_namespace_update(store: ObjectStore, namespace: JSON, old: JSON, warnings: list[str]) -> None:
    """Raise StatusError 422 for invalid labels of an update; warn about existing pods that violate a new level."""
    labels, before = (namespace_object["metadata"].get("labels", {}) for namespace_object in (namespace, old))
    if labels == before:
        return
    (policy, problems), (previous, old_problems) = _parse_labels(labels), _parse_labels(before)
    if problems and problems != old_problems:
        raise errors.invalid("", "Namespace", namespace["metadata"]["name"], problems)
    enforced, old_enforced = policy.enforce, previous.enforce
    if enforced.is_stricter_than(old_enforced) or (
        enforced.level != "privileged" and enforced.minor != old_enforced.minor
    ):
        warnings += _existing_pod_warnings(store, namespace["metadata"]["name"], enforced)


def _existing_pod_warnings(store: ObjectStore, namespace: str, standard: _Standard) -> list[str]:
    """Return warnings about a namespace's pods that violate a level; one pod per controller is checked first."""
    first_of_controllers: list[JSON] = []
    other_pods: list[JSON] = []
    controllers = set()
    for pod in store.list(PODS, namespace):
        references = pod["metadata"].get("ownerReferences", ())
        controller = next((reference["uid"] for reference in references if reference.get("controller")), None)
        (other_pods if controller in controllers else first_of_controllers).append(pod)
        if controller is not None:
            controllers.add(controller)
    pods, messages = [*first_of_controllers, *other_pods], []
    pods_by_reasons: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods[:_MAX_PODS_CHECKED]:
        if pod_violations := _violations(standard, pod["metadata"], pod["spec"]):
            pods_by_reasons[", ".join(violation.reason for violation in pod_violations)].append(pod["metadata"]["name"])
    if len(pods) > _MAX_PODS_CHECKED:
        checked = f"the first {_MAX_PODS_CHECKED} of {len(pods)} existing pods"
        messages.append(f"new PodSecurity enforce level only checked against {checked}")
    if pods_by_reasons:
        messages.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"'
        )
    return messages + sorted(f"{_name_and_count(names)}: {reasons}" for reasons, names in pods_by_reasons.items())


def _name_and_count(names: list[str]) -> str:
    others = len(names) - 1
    return min(names) + (f" (and {others} other pod{'s' if others > 1 else ''})" if others else "")


# --- pods and their templates -----------------------------------------------------------------------------------------


def check_pod(
    store: ObjectStore, pod: JSON, warnings: list[str], old: JSON | None = None, *, audit: AuditRecord | None = None
) -> None:
    """Raise StatusError 403 for a pod that violates the enforced level; warn about the `warn` level.

    old: the pod before an update, which is not checked if the images of its containers stay the same. audit: of the
    request.
    """
    policy = _namespace_policy(store, pod["metadata"]["namespace"])
    if policy is None and audit is None:
        return
    policy = policy or _Policy()
    if old is not None and _has_same_images(pod["spec"], old["spec"]):
        return
    metadata, spec = pod["metadata"], pod["spec"]
    if audit is not None:
        audit.annotate(f"{_LABEL_PREFIX}enforce-policy", str(policy.enforce))
        _annotate_violations(audit, policy.audit, metadata, spec)
    if pod_violations := _violations(policy.enforce, metadata, spec):
        message = f'violates PodSecurity "{policy.enforce}": {_format_violations(pod_violations)}'
        raise errors.forbidden(PODS, metadata.get("name", ""), message)
    if policy.warn != policy.enforce:
        _warn(policy.warn, metadata, spec, warnings)


def check_template(
    store: ObjectStore, obj: JSON, path: tuple[str, ...], warnings: list[str], *, audit: AuditRecord | None = None
) -> None:
    """Warn about pods that an object would create; only the pods themselves are rejected. path: to the template."""
    policy = _namespace_policy(store, obj["metadata"]["namespace"])
    if policy is None:
        return
    template = obj
    for name in path:
        template = template.get(name) or {}
    if template:
        metadata, spec = template.get("metadata", {}), template.get("spec", {})
        if audit is not None:
            _annotate_violations(audit, policy.audit, metadata, spec)
        _warn(policy.warn, metadata, spec, warnings)


def _annotate_violations(audit: AuditRecord, standard: _Standard, metadata: JSON, spec: JSON) -> None:
    if pod_violations := _violations(standard, metadata, spec):
        text = f'would violate PodSecurity "{standard}": {_format_violations(pod_violations)}'
        audit.annotate(f"{_LABEL_PREFIX}audit-violations", text)


def _warn(standard: _Standard, metadata: JSON, spec: JSON, warnings: list[str]) -> None:
    if pod_violations := _violations(standard, metadata, spec):
        warnings.append(f'would violate PodSecurity "{standard}": {_format_violations(pod_violations)}')


def _violations(standard: _Standard, metadata: JSON, spec: JSON) -> list[Violation]:
    if standard.level == "privileged":
        return []
    from kubeloop.devcluster.admission.pod_security_checks import (
        violations,
    )  # imported for namespaces with a level only

    return violations(standard.level, standard.minor, metadata, spec)


def _format_violations(pod_violations: list[Violation]) -> str:
    return ", ".join(f"{violation.reason} ({violation.detail})" for violation in pod_violations)


def _has_same_images(spec: JSON, old: JSON) -> bool:
    """Return True if the containers have the same images and no ephemeral container is new."""
    for kind in ("containers", "initContainers"):
        if [container.get("image") for container in spec.get(kind) or ()] != [
            container.get("image") for container in old.get(kind) or ()
        ]:
            return False
    old_images = {container["name"]: container.get("image") for container in old.get("ephemeralContainers") or ()}
    return all(
        container["name"] in old_images and old_images[container["name"]] == container.get("image")
        for container in spec.get("ephemeralContainers") or ()
    )


# --- labels -----------------------------------------------------------------------------------------------------------


def _namespace_policy(store: ObjectStore, namespace: str) -> _Policy | None:
    """Return the policy of a namespace; None without labels."""
    namespace_object = store.get(NAMESPACES, "", namespace)
    labels = {} if namespace_object is None else namespace_object["metadata"].get("labels", {})
    return _parse_labels(labels)[0] if any(name.startswith(_LABEL_PREFIX) for name in labels) else None


def _parse_labels(labels: Mapping[str, str]) -> tuple[_Policy, ErrorList]:
    """Return the policy that labels set, and their errors; an invalid enforce level counts as restricted."""
    problems = ErrorList()
    enforce_level, enforce_version = (
        _parse_level(labels, "enforce", problems),
        _parse_version(labels, "enforce", problems),
    )
    audit_level, audit_version = _parse_level(labels, "audit", problems), _parse_version(labels, "audit", problems)
    warn_level, warn_version = _parse_level(labels, "warn", problems), _parse_version(labels, "warn", problems)
    enforce = _Standard("restricted" if enforce_level == "" else enforce_level or "privileged", enforce_version)
    if warn_level is None and enforce_level:
        warn = _Standard(enforce_level, warn_version if f"{_LABEL_PREFIX}warn-version" in labels else enforce_version)
    else:
        warn = _Standard(warn_level or "privileged", warn_version)
    return _Policy(enforce, _Standard(audit_level or "privileged", audit_version), warn), problems


def _parse_level(labels: Mapping[str, str], mode: str, problems: ErrorList) -> str | None:
    """Return a level; None without the label, "" for an invalid one."""
    level = labels.get(f"{_LABEL_PREFIX}{mode}")
    if level is None or level in _LEVELS:
        return level
    problems.invalid(f"metadata.labels[{_LABEL_PREFIX}{mode}]", level, f"must be one of {', '.join(_LEVELS)}")
    return ""


def _parse_version(labels: Mapping[str, str], mode: str, problems: ErrorList) -> int | None:
    version = labels.get(f"{_LABEL_PREFIX}{mode}-version", "latest")
    if version == "latest":
        return None
    matched = _VERSION.fullmatch(version)
    if matched is not None and int(matched[1]) <= _MAX_INT64:
        return int(matched[1])
    problems.invalid(f"metadata.labels[{_LABEL_PREFIX}{mode}-version]", version, 'must be "latest" or "v1.x"')
    return None
