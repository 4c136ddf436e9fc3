"""Kinds made of pod templates, but Jobs. Sources: pkg/apis/apps/validation, core for ReplicationControllers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from kubeloop.devcluster.api.name_checks import dns_label
from kubeloop.devcluster.serializer.controller_revision_data import SentData, compact, is_same_data
from kubeloop.devcluster.validation.claims import claim_spec
from kubeloop.devcluster.validation.field import (
    IMMUTABLE,
    Errors,
    is_valid_selector,
    label_selector,
    not_more_than_100_percent,
    positive_int_or_percent,
    selector_matches,
)
from kubeloop.devcluster.validation.pods import pod_template_metadata, pod_template_spec, template_before
from kubeloop.kube.json_object import JSON

_MISMATCH = "`selector` does not match template `labels`"
_SELECTOR = "meta/v1.LabelSelector"


def _selector(errors: Errors, path: str, selector: JSON | None, empty: str) -> None:
    if selector is None:
        errors.required(path)
        return
    label_selector(errors, path, selector)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.invalid(path, selector, empty, _SELECTOR)


def _template(errors: Errors, path: str, spec: JSON, owner: str, old: JSON | None = None) -> None:
    selector, template = spec.get("selector"), spec.get("template", {})
    if not is_valid_selector(selector):
        errors.invalid(f"{path}.selector", selector, "invalid label selector", _SELECTOR)
        return
    found = template.get("metadata", {}).get("labels")
    if selector != {} and not selector_matches(selector, found or {}):
        errors.invalid(f"{path}.template.metadata.labels", found, _MISMATCH)
    pod_template_spec(errors, f"{path}.template", template, template_before(old))
    _always_restarts(errors, f"{path}.template.spec", template.get("spec", {}), owner)


def _always_restarts(errors: Errors, path: str, spec: JSON, owner: str) -> None:
    if spec.get("restartPolicy") != "Always":
        errors.not_supported(f"{path}.restartPolicy", spec.get("restartPolicy", ""), ("Always",))
    if "activeDeadlineSeconds" in spec:
        errors.forbidden(f"{path}.activeDeadlineSeconds", f"activeDeadlineSeconds in {owner} is not Supported")


def pod_template_create(errors: Errors, obj: JSON, old: JSON | None = None) -> None:
    pod_template_spec(errors, "template", obj.get("template", {}), None if old is None else old.get("template", {}))


def pod_template_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj.get("template") != old.get("template"):
        pod_template_create(errors, obj, old)


def deployment_create(errors: Errors, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    _selector(errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment")
    _template(errors, "spec", spec, "ReplicaSet", old)
    _deployment_strategy(errors, "spec.strategy", spec.get("strategy", {}))
    least = spec.get("minReadySeconds", 0)
    errors.not_negative("spec.minReadySeconds", least)
    errors.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        errors.not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= least:
            errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _deployment_strategy(errors: Errors, path: str, strategy: JSON) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            errors.forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        if rolling is None:
            errors.required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")
            return
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        positive_int_or_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
        positive_int_or_percent(errors, f"{path}.rollingUpdate.maxSurge", surge)
        if _is_zero(unavailable) and _is_zero(surge):
            errors.invalid(f"{path}.rollingUpdate.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        not_more_than_100_percent(errors, f"{path}.rollingUpdate.maxUnavailable", unavailable)
    else:
        errors.not_supported(path, strategy, ("Recreate", "RollingUpdate"), "apps/v1.DeploymentStrategy")


def _is_zero(value: int | str | None) -> bool:
    """Also of text that is neither a percentage nor a number, which counts as none."""
    return value in (0, None) or (type(value) is str and not re.fullmatch("0*[1-9][0-9]*%|[+-]?0*[1-9][0-9]*", value))


def deployment_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        deployment_create(errors, obj, old)
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), _SELECTOR)


def deployment_status(errors: Errors, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
                 "unavailableReplicas", "terminatingReplicas", "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    _not_more(errors, status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
    _collision_count(errors, obj, old)


def _not_more(errors: Errors, status: JSON, names: tuple[str, ...], ready: str = "readyReplicas") -> None:
    """None of `names` more than replicas, and not more available than ready. ready: how a message calls these."""
    for name in names:
        if (count := status.get(name, 0)) > status.get("replicas", 0):
            errors.invalid(f"status.{name}", count, "cannot be greater than status.replicas")
    if (available := status.get("availableReplicas", 0)) > status.get("readyReplicas", 0):
        errors.invalid("status.availableReplicas", available, f"cannot be greater than {ready}")


def replica_set_create(errors: Errors, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    errors.not_negative("spec.replicas", spec.get("replicas"))
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    _selector(errors, "spec.selector", spec.get("selector"), "empty selector is invalid for deployment")
    _template(errors, "spec", spec, "ReplicaSet", old)


def replica_set_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        replica_set_create(errors, obj, old)
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), _SELECTOR)


def replica_set_status(errors: Errors, obj: JSON, old: JSON) -> None:
    del old
    status = obj.get("status", {})
    for name in ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
                 "observedGeneration"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    _not_more(errors, status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))


def replication_controller_create(errors: Errors, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    selector, template = spec.get("selector", {}), spec.get("template")
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if not selector:
        errors.required("spec.selector")
    errors.not_negative("spec.replicas", spec.get("replicas"))
    if template is None:
        errors.required("spec.template")
        return
    found = template.get("metadata", {}).get("labels")
    if selector and any((found or {}).get(key) != value for key, value in selector.items()):
        errors.invalid("spec.template.metadata.labels", found, _MISMATCH)
    pod_template_spec(errors, "spec.template", template, template_before(old))
    _always_restarts(errors, "spec.template.spec", template.get("spec", {}), "ReplicationController")


def replication_controller_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        replication_controller_create(errors, obj, old)


def stateful_set_create(errors: Errors, obj: JSON) -> None:
    _stateful_set(errors, obj["spec"])


def _stateful_set(errors: Errors, spec: JSON, old: JSON | None = None, *, templates: bool = True) -> None:
    """A StatefulSet's spec. old: the one before an update. templates: look at the pod template, too."""
    new = old is None
    policy = spec.get("podManagementPolicy", "")
    if not policy:
        errors.required("spec.podManagementPolicy")
    elif policy not in ("OrderedReady", "Parallel"):
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.get("updateStrategy", {})
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            wrong = "only allowed for updateStrategy 'RollingUpdate'"
            errors.invalid(
                "spec.updateStrategy.rollingUpdate", rolling, wrong, "apps/v1.RollingUpdateStatefulSetStrategy"
            )
    elif kind == "RollingUpdate":
        _stateful_rolling_update(errors, "spec.updateStrategy.rollingUpdate", rolling or {})
    elif not kind:
        errors.required("spec.updateStrategy")
    else:
        wrong = "must be 'RollingUpdate' or 'OnDelete'"
        errors.invalid("spec.updateStrategy", strategy, wrong, "apps/v1.StatefulSetUpdateStrategy")
    _claim_retention(errors, "spec.persistentVolumeClaimRetentionPolicy", spec)
    for i, claim in enumerate(spec.get("volumeClaimTemplates", ()) if new else ()):
        claim_spec(errors, f"spec.volumeClaimTemplates[{i}].spec", claim.get("spec", {}))
    errors.not_negative("spec.replicas", spec.get("replicas"))
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    errors.not_negative("spec.ordinals.start", spec.get("ordinals", {}).get("start"))
    service = spec.get("serviceName", "")
    if new and service:
        errors.invalid_each("spec.serviceName", service, dns_label(service))
    selector, template = spec.get("selector"), spec.get("template", {})
    _selector(errors, "spec.selector", selector, "empty selector is invalid for statefulset")
    if not is_valid_selector(selector):
        errors.invalid("spec.selector", selector, "", _SELECTOR)
    else:
        found = template.get("metadata", {}).get("labels")
        if selector != {} and not selector_matches(selector, found or {}):
            errors.invalid("spec.template.metadata.labels", found, _MISMATCH)
        if templates:
            _stateful_template(errors, spec, old)
    if template.get("spec", {}).get("restartPolicy") != "Always":
        policy = template.get("spec", {}).get("restartPolicy", "")
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if "activeDeadlineSeconds" in template.get("spec", {}):
        errors.forbidden(
            "spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in StatefulSet is not Supported"
        )


def _stateful_template(errors: Errors, spec: JSON, old: JSON | None) -> None:
    template = _as_the_controller_sets_it(spec.get("template", {}), spec.get("volumeClaimTemplates", ()))
    before = None if old is None else old.get("template", {})
    pod_template_spec(errors, "spec.template", template, before)
    pod_template_metadata(errors, "spec.template", template, before)  # a second time, as in Kubernetes


def _as_the_controller_sets_it(template: JSON, claims: Sequence[JSON]) -> JSON:
    """The template without the names that each pod gets, and with the volumes that are added, one for each claim."""
    names = [each.get("metadata", {}).get("name", "") for each in claims]
    spec = template.get("spec", {})
    if "hostname" in spec or "subdomain" in spec:
        spec = {name: each for name, each in spec.items() if name not in ("hostname", "subdomain")}
        template = {**template, "spec": spec}
    if not names:
        return template
    kept = [each for each in spec.get("volumes", ()) if each.get("name") not in names]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    return {**template, "spec": {**spec, "volumes": [*claimed, *kept]}}


def _stateful_rolling_update(errors: Errors, path: str, rolling: JSON) -> None:
    errors.not_negative(f"{path}.partition", rolling.get("partition"))
    most = rolling.get("maxUnavailable")
    if most is not None:
        positive_int_or_percent(errors, f"{path}.maxUnavailable", most)
        if _is_zero(most):
            errors.invalid(f"{path}.maxUnavailable", most, "cannot be 0")
        not_more_than_100_percent(errors, f"{path}.maxUnavailable", most)


def _claim_retention(errors: Errors, path: str, spec: JSON) -> None:
    policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        if name in policy and policy[name] not in ("Retain", "Delete"):
            errors.not_supported(f"{path}.{name}", policy[name], ("Retain", "Delete"))


_STATEFUL_SET_OPEN = frozenset(
    {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
     "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
)  # fmt: skip


def stateful_set_update(errors: Errors, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    wrong_before = Errors()
    _stateful_set(wrong_before, before, before)
    # one that came to be under other rules can still be scaled, and given up
    _stateful_set(errors, spec, before, templates=not wrong_before)
    if any(spec.get(name) != before.get(name) for name in {*spec, *before} - _STATEFUL_SET_OPEN):
        errors.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )


def stateful_set_status(errors: Errors, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
                 "observedGeneration", "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    counted = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    _not_more(errors, status, counted, "status.readyReplicas")
    _collision_count(errors, obj, old)


def _collision_count(errors: Errors, obj: JSON, old: JSON) -> None:
    count, before = obj.get("status", {}).get("collisionCount"), old.get("status", {}).get("collisionCount")
    if before is not None and (count is None or count < before):
        errors.invalid("status.collisionCount", count or 0, "cannot be decremented")


def revision_create(errors: Errors, obj: JSON) -> None:
    errors.not_negative("revision", obj.get("revision"))
    if obj.get("data") is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(obj["data"], dict):
        errors.required("data", "data must be a valid JSON object")


def revision_update(errors: Errors, obj: JSON, old: JSON) -> None:
    errors.not_negative("revision", obj.get("revision"))
    data, before = obj.get("data"), old.get("data")
    if not is_same_data(data, before):
        # a message shows the text, too
        errors.invalid("data", msgspec.Raw(compact(data.text)) if isinstance(data, SentData) else data, IMMUTABLE)


def daemon_set_create(errors: Errors, obj: JSON, old: JSON | None = None) -> None:
    spec = obj["spec"]
    selector, template = spec.get("selector"), spec.get("template", {})
    label_selector(errors, "spec.selector", selector)
    found = template.get("metadata", {}).get("labels")
    if is_valid_selector(selector) and selector != {} and not selector_matches(selector, found or {}):
        errors.invalid("spec.template.metadata.labels", found, _MISMATCH)
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.invalid("spec.selector", selector, "empty selector is invalid for daemonset", _SELECTOR)
    pod_template_spec(errors, "spec.template", template, template_before(old))
    _always_restarts(errors, "spec.template.spec", template.get("spec", {}), "DaemonSet")
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    _daemon_set_strategy(errors, "spec.updateStrategy", spec.get("updateStrategy", {}))
    errors.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _daemon_set_strategy(errors: Errors, path: str, strategy: JSON) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        errors.not_supported(path, strategy, ("RollingUpdate", "OnDelete"), "apps/v1.DaemonSetUpdateStrategy")
        return
    where = f"{path}.rollingUpdate"
    if rolling is None:
        errors.required(where)
        return
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for check in (positive_int_or_percent, not_more_than_100_percent):
        check(errors, f"{where}.maxUnavailable", unavailable)
        check(errors, f"{where}.maxSurge", surge)
    if not _is_zero(unavailable) and not _is_zero(surge):
        errors.invalid(f"{where}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif _is_zero(unavailable) and _is_zero(surge):
        errors.required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def daemon_set_status(errors: Errors, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
                 "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
                 "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    _collision_count(errors, obj, old)


def daemon_set_update(errors: Errors, obj: JSON, old: JSON) -> None:
    if obj["spec"] != old["spec"]:
        errors.immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"), _SELECTOR)
        daemon_set_create(errors, obj, old)
