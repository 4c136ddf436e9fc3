"""StatefulSets. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, containers_of, ready_replicas, row
from kubeloop.devcluster.registry.disabled_fields import drop_fields
from kubeloop.devcluster.serializer.defaulting import (
    default_persistent_volume_claim,
    default_template,
)
from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    is_valid_selector,
    is_zero_int_or_percent,
    selector_matches,
    validate_at_most_100_percent,
    validate_positive_int_or_percent,
)
from kubeloop.devcluster.validation.common.persistent_volume_claim_spec import validate_claim_spec
from kubeloop.devcluster.validation.common.workload_status import validate_collision_count, validate_replica_counts
from kubeloop.devcluster.validation.pod.pod_spec import validate_pod_template_metadata, validate_pod_template_spec
from kubeloop.devcluster.validation.pod.workload_template import (
    LABEL_SELECTOR,
    SELECTOR_MISMATCH,
    validate_workload_selector,
)
from kubeloop.devcluster.validation.warnings.pod_warnings import claim_warnings, workload_warnings
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_label


def validate_stateful_set(errors: ErrorList, obj: JSON) -> None:
    _validate_stateful_set_spec(errors, obj["spec"])


def _validate_stateful_set_spec(
    errors: ErrorList, spec: JSON, old: JSON | None = None, *, with_template: bool = True
) -> None:
    """Validate a StatefulSet's spec. old: the spec before an update. with_template: validate the pod template, too."""
    is_new = old is None
    policy = spec.get("podManagementPolicy", "")
    if errors.require("spec.podManagementPolicy", policy) and policy not in ("OrderedReady", "Parallel"):
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.get("updateStrategy", {})
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            errors.invalid(
                "spec.updateStrategy.rollingUpdate", rolling, detail, "apps/v1.RollingUpdateStatefulSetStrategy"
            )
    elif kind == "RollingUpdate":
        _validate_rolling_update(errors, "spec.updateStrategy.rollingUpdate", rolling or {})
    elif not kind:
        errors.required("spec.updateStrategy")
    else:
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        errors.invalid("spec.updateStrategy", strategy, detail, "apps/v1.StatefulSetUpdateStrategy")
    _validate_claim_retention_policy(errors, "spec.persistentVolumeClaimRetentionPolicy", spec)
    for i, claim in enumerate(spec.get("volumeClaimTemplates", ()) if is_new else ()):
        validate_claim_spec(errors, f"spec.volumeClaimTemplates[{i}].spec", claim.get("spec", {}))
    errors.not_negative("spec.replicas", spec.get("replicas"))
    errors.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    errors.not_negative("spec.ordinals.start", spec.get("ordinals", {}).get("start"))
    service = spec.get("serviceName", "")
    if is_new and service:
        errors.check("spec.serviceName", service, dns_label)
    selector, template = spec.get("selector"), spec.get("template", {})
    validate_workload_selector(errors, "spec.selector", selector, "empty selector is invalid for statefulset")
    if not is_valid_selector(selector):
        errors.invalid("spec.selector", selector, "", LABEL_SELECTOR)
    else:
        template_labels = template.get("metadata", {}).get("labels")
        if selector != {} and not selector_matches(selector, template_labels or {}):
            errors.invalid("spec.template.metadata.labels", template_labels, SELECTOR_MISMATCH)
        if with_template:
            _validate_stateful_set_template(errors, spec, old)
    if template.get("spec", {}).get("restartPolicy") != "Always":
        policy = template.get("spec", {}).get("restartPolicy", "")
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if "activeDeadlineSeconds" in template.get("spec", {}):
        errors.forbidden(
            "spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in StatefulSet is not Supported"
        )


def _validate_stateful_set_template(errors: ErrorList, spec: JSON, old: JSON | None) -> None:
    template = _template_with_claim_volumes(spec.get("template", {}), spec.get("volumeClaimTemplates", ()))
    before = None if old is None else old.get("template", {})
    validate_pod_template_spec(errors, "spec.template", template, before)
    validate_pod_template_metadata(errors, "spec.template", template, before)  # a second time, as in Kubernetes


def _template_with_claim_volumes(template: JSON, claims: Sequence[JSON]) -> JSON:
    """Return the template as the controller uses it: with one volume per claim, without hostname and subdomain."""
    names = [claim.get("metadata", {}).get("name", "") for claim in claims]
    spec = template.get("spec", {})
    if "hostname" in spec or "subdomain" in spec:
        spec = {name: value for name, value in spec.items() if name not in ("hostname", "subdomain")}
        template = {**template, "spec": spec}
    if not names:
        return template
    own_volumes = [volume for volume in spec.get("volumes", ()) if volume.get("name") not in names]
    claim_volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    return {**template, "spec": {**spec, "volumes": [*claim_volumes, *own_volumes]}}


def _validate_rolling_update(errors: ErrorList, path: str, rolling: JSON) -> None:
    errors.not_negative(f"{path}.partition", rolling.get("partition"))
    max_unavailable = rolling.get("maxUnavailable")
    if max_unavailable is not None:
        validate_positive_int_or_percent(errors, f"{path}.maxUnavailable", max_unavailable)
        if is_zero_int_or_percent(max_unavailable):
            errors.invalid(f"{path}.maxUnavailable", max_unavailable, "cannot be 0")
        validate_at_most_100_percent(errors, f"{path}.maxUnavailable", max_unavailable)


def _validate_claim_retention_policy(errors: ErrorList, path: str, spec: JSON) -> None:
    policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        errors.one_of(f"{path}.{name}", policy.get(name), ("Retain", "Delete"))


_STATEFUL_SET_OPEN = frozenset(
    {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
     "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
)  # fmt: skip


def validate_stateful_set_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    old_errors = ErrorList()
    _validate_stateful_set_spec(old_errors, before, before)
    # a StatefulSet that was valid under older rules can still be scaled and deleted
    _validate_stateful_set_spec(errors, spec, before, with_template=not old_errors)
    if any(spec.get(name) != before.get(name) for name in {*spec, *before} - _STATEFUL_SET_OPEN):
        errors.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )


def validate_stateful_set_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status = obj.get("status", {})
    for name in ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
                 "observedGeneration", "collisionCount"):  # fmt: skip
        errors.not_negative(f"status.{name}", status.get(name))
    counted = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    validate_replica_counts(errors, status, counted, "status.readyReplicas")
    validate_collision_count(errors, obj, old)


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    default_template(spec)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        default_persistent_volume_claim(claim)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)


def _warnings(stateful_set: JSON, old: JSON | None) -> list[str]:
    warnings, spec = workload_warnings(stateful_set, old), stateful_set["spec"]
    spec_segment = ".Spec" if old is not None else ""
    for i, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        warnings += claim_warnings(claim.get("spec", {}), f"spec.volumeClaimTemplates[{i}]{spec_segment}")
    if spec.get("revisionHistoryLimit", 0) < 0:
        warnings.append(_NEGATIVE_HISTORY_LIMIT)
    return warnings


_NEGATIVE_HISTORY_LIMIT = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)


def _rolling_update(stateful_set: JSON) -> Iterator[JSON]:
    strategy = stateful_set.get("spec", {}).get("updateStrategy") or {}
    if (rolling_update := strategy.get("rollingUpdate")) is not None:
        yield rolling_update


def _default_max_unavailable(stateful_set: JSON) -> None:
    for rolling_update in _rolling_update(stateful_set):
        rolling_update.setdefault("maxUnavailable", 1)


STRATEGY = Strategy(
    default=_default,
    template_path=("spec", "template"),
    gated_fields=(("MaxUnavailableStatefulSet", drop_fields((_rolling_update, ("maxUnavailable",)))),),
    gated_default=("MaxUnavailableStatefulSet", _default_max_unavailable),
    name_check=dns_label,
    validate=validate_stateful_set,
    validate_update=validate_stateful_set_update,
    validate_subresources={"status": validate_stateful_set_status_update},
    warnings=_warnings,
    cells=row(ready_replicas, AGE, *containers_of("spec.template")),
)
