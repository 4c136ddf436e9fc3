"""PodSecurity: the levels that labels of a namespace ask of its pods.

    enforce   pods that break the level are refused
    warn      those who write such pods, or templates of them, are warned; as much as enforce if nothing else is said
    audit     is for an audit log, and there is none here

Without labels everything is allowed, and nobody is exempt: the default configuration. What a level forbids says
`pod_security_checks`. Source: pod-security-admission/{api,admission} of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, PODS

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.pod_security_checks import Violation

_LEVELS = ("privileged", "baseline", "restricted")
"""From the least strict."""
_LABELS = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
_MAX_INT64 = (1 << 63) - 1
_MAX_PODS_CHECKED = 3000


class _Standard(NamedTuple):
    """A level at version 1.`minor` of its rules; None for the latest."""

    level: str = "privileged"
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:latest" if self.minor is None else f"{self.level}:v1.{self.minor}"

    def is_stricter_than(self, other: _Standard) -> bool:
        return _LEVELS.index(self.level) > _LEVELS.index(other.level)


class _Policy(NamedTuple):
    enforce: _Standard = _Standard()
    warn: _Standard = _Standard()


# --- namespaces -------------------------------------------------------------------------------------------------------


def check_new_namespace(namespace: JSON) -> None:
    """Raises StatusError 422 where the labels that choose levels say something unknown."""
    _, wrong = _read(namespace["metadata"].get("labels", {}))
    if wrong:
        raise errors.invalid("", "Namespace", namespace["metadata"].get("name", ""), wrong)


def check_changed_namespace(store: Store, namespace: JSON, old: JSON, warnings: list[str]) -> None:
    """As check_new_namespace; warns of pods that are there already and break a level that is new."""
    labels, before = (each["metadata"].get("labels", {}) for each in (namespace, old))
    if labels == before:
        return
    (policy, wrong), (previous, wrong_before) = _read(labels), _read(before)
    if wrong and wrong != wrong_before:
        raise errors.invalid("", "Namespace", namespace["metadata"]["name"], wrong)
    new, known = policy.enforce, previous.enforce
    if new.is_stricter_than(known) or (new.level != "privileged" and new.minor != known.minor):
        warnings += _present_violations(store, namespace["metadata"]["name"], new)


def _present_violations(store: Store, namespace: str, standard: _Standard) -> list[str]:
    """What pods of a namespace break, one of each controller before the others."""
    first: list[JSON] = []
    others: list[JSON] = []
    controllers = set()
    for pod in store.list(PODS, namespace):
        references = pod["metadata"].get("ownerReferences", ())
        controller = next((each["uid"] for each in references if each.get("controller")), None)
        (others if controller in controllers else first).append(pod)
        if controller is not None:
            controllers.add(controller)
    pods, told = [*first, *others], []
    broken: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods[:_MAX_PODS_CHECKED]:
        if found := _violations(standard, pod["metadata"], pod["spec"]):
            broken[", ".join(each.reason for each in found)].append(pod["metadata"]["name"])
    if len(pods) > _MAX_PODS_CHECKED:
        of_all = f"the first {_MAX_PODS_CHECKED} of {len(pods)} existing pods"
        told.append(f"new PodSecurity enforce level only checked against {of_all}")
    if broken:
        told.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"')
    return told + sorted(f"{_first_of(names)}: {reasons}" for reasons, names in broken.items())


def _first_of(names: list[str]) -> str:
    more = len(names) - 1
    return min(names) + (f" (and {more} other pod{'s' if more > 1 else ''})" if more else "")


# --- pods and their templates -----------------------------------------------------------------------------------------


def check_pod(store: Store, pod: JSON, warnings: list[str], old: JSON | None = None) -> None:
    """Raises StatusError 403 for a pod that breaks the level that is enforced; warns of the other.

    old: the version before, of an update; if there are the same containers with the same images, nothing is looked at.
    """
    policy = _policy_in(store, pod["metadata"]["namespace"])
    if policy is None or (old is not None and _same_images(pod["spec"], old["spec"])):
        return
    metadata, spec = pod["metadata"], pod["spec"]
    if found := _violations(policy.enforce, metadata, spec):
        why = f'violates PodSecurity "{policy.enforce}": {_told(found)}'
        raise errors.forbidden(PODS, metadata.get("name", ""), why)
    if policy.warn != policy.enforce:
        _warn(policy.warn, metadata, spec, warnings)


def check_template(store: Store, obj: JSON, warnings: list[str]) -> None:
    """Warns of pods that `obj` would make. It is the pods themselves that are refused."""
    policy = _policy_in(store, obj["metadata"]["namespace"])
    if policy is None:
        return
    spec = obj.get("spec", {})
    if obj["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template = (obj if obj["kind"] == "PodTemplate" else spec).get("template")
    if template is not None:
        _warn(policy.warn, template.get("metadata", {}), template.get("spec", {}), warnings)


def _warn(standard: _Standard, metadata: JSON, spec: JSON, warnings: list[str]) -> None:
    if found := _violations(standard, metadata, spec):
        warnings.append(f'would violate PodSecurity "{standard}": {_told(found)}')


def _violations(standard: _Standard, metadata: JSON, spec: JSON) -> list[Violation]:
    if standard.level == "privileged":
        return []
    from kubeloop.devcluster.admission.pod_security_checks import violations  # only those who ask for a level need them

    return violations(standard.level, standard.minor, metadata, spec)


def _told(found: list[Violation]) -> str:
    return ", ".join(f"{each.reason} ({each.detail})" for each in found)


def _same_images(spec: JSON, old: JSON) -> bool:
    """Are there the same numbers of containers with the same images, and no ephemeral ones that are new?"""
    for kind in ("containers", "initContainers"):
        if [each.get("image") for each in spec.get(kind) or ()] != [each.get("image") for each in old.get(kind) or ()]:
            return False
    known = {each["name"]: each.get("image") for each in old.get("ephemeralContainers") or ()}
    return all(
        each["name"] in known and known[each["name"]] == each.get("image")
        for each in spec.get("ephemeralContainers") or ()
    )


# --- labels -----------------------------------------------------------------------------------------------------------


def _policy_in(store: Store, namespace: str) -> _Policy | None:
    """What a namespace asks of its pods; None for nothing."""
    found = store.get(NAMESPACES, "", namespace)
    labels = {} if found is None else found["metadata"].get("labels", {})
    return _read(labels)[0] if any(name.startswith(_LABELS) for name in labels) else None


def _read(labels: Mapping[str, str]) -> tuple[_Policy, ErrorList]:
    """The policy that labels choose, and what is wrong with them: then enforce is as strict as can be, warn is not."""
    wrong = ErrorList()
    enforced, of_enforced = _level(labels, "enforce", wrong), _minor(labels, "enforce", wrong)
    _level(labels, "audit", wrong)
    _minor(labels, "audit", wrong)
    warned, of_warned = _level(labels, "warn", wrong), _minor(labels, "warn", wrong)
    enforce = _Standard("restricted" if enforced == "" else enforced or "privileged", of_enforced)
    if warned is None and enforced:
        warn = _Standard(enforced, of_warned if f"{_LABELS}warn-version" in labels else of_enforced)
    else:
        warn = _Standard(warned or "privileged", of_warned)
    return _Policy(enforce, warn), wrong


def _level(labels: Mapping[str, str], mode: str, wrong: ErrorList) -> str | None:
    """None if the label is not there, "" if it is wrong."""
    level = labels.get(f"{_LABELS}{mode}")
    if level is None or level in _LEVELS:
        return level
    wrong.invalid(f"metadata.labels[{_LABELS}{mode}]", level, f"must be one of {', '.join(_LEVELS)}")
    return ""


def _minor(labels: Mapping[str, str], mode: str, wrong: ErrorList) -> int | None:
    version = labels.get(f"{_LABELS}{mode}-version", "latest")
    if version == "latest":
        return None
    matched = _VERSION.fullmatch(version)
    if matched is not None and int(matched[1]) <= _MAX_INT64:
        return int(matched[1])
    wrong.invalid(f"metadata.labels[{_LABELS}{mode}-version]", version, 'must be "latest" or "v1.x"')
    return None
