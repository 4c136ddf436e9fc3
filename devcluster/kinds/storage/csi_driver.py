"""CSIDrivers. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.printers.columns import AGE, boolean_of, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, UNSET, spec_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, spec_part
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON

_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Persistent", "Ephemeral")


def validate_csi_driver(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    policy = spec.get("fsGroupPolicy")
    errors.one_of("spec.fsGroupPolicy", policy, _GROUP_POLICIES)
    _validate_token_requests(errors, spec.get("tokenRequests", ()))
    for mode in spec.get("volumeLifecycleModes", ()):
        errors.one_of("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        detail = "must be greater than or equal to 10 seconds"
        errors.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail)


def _validate_token_requests(errors: ErrorList, requests: Sequence[JSON]) -> None:
    seen = set()
    for i, request in enumerate(requests):
        where, audience, seconds = (
            f"spec.tokenRequests[{i}]",
            request.get("audience", ""),
            request.get("expirationSeconds"),
        )
        if audience in seen:
            errors.duplicate(f"{where}.audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            errors.invalid(f"{where}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            errors.invalid(f"{where}.expirationSeconds", seconds, detail)


def validate_csi_driver_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_csi_driver(errors, obj)
    new, before = obj["spec"], old["spec"]
    errors.immutable("spec.attachedRequired", new.get("attachRequired"), before.get("attachRequired"))
    errors.immutable("spec.volumeLifecycleModes", new.get("volumeLifecycleModes"), before.get("volumeLifecycleModes"))


def _default(obj: JSON) -> None:
    spec = obj["spec"]
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def _token_audiences(obj: JSON, _now: datetime) -> str:
    requests = spec_of(obj).get("tokenRequests")
    return UNSET if requests is None else ",".join(request.get("audience", "") for request in requests)


_TOKENS_IN_SECRETS_UNSET = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def _warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    requests = obj["spec"].get("tokenRequests")
    changed = old is None or requests != old["spec"].get("tokenRequests")
    if changed and requests and obj["spec"].get("serviceAccountTokenInSecrets") is None:
        yield _TOKENS_IN_SECRETS_UNSET


def _prepare_update(driver: JSON, old: JSON, _write: Write) -> None:
    """Increase the generation with each change of the spec; it starts with the first change, not with the creation."""
    if driver.get("spec") != old.get("spec"):
        driver["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


STRATEGY = Strategy(
    default=_default,
    gated_fields=(("VolumeLimitScaling", drop_fields((spec_part, ("preventPodSchedulingIfMissing",)))),),
    gated_default=(
        "VolumeLimitScaling",
        lambda driver: driver.setdefault("spec", {}).setdefault("preventPodSchedulingIfMissing", False),
    ),
    prepare_update=_prepare_update,
    validate=validate_csi_driver,
    validate_update=validate_csi_driver_update,
    warnings=_warnings,
    cells=row(
        lambda obj, _now: spec_of(obj).get("attachRequired") is not False,
        boolean_of("spec.podInfoOnMount"),
        boolean_of("spec.storageCapacity"),
        _token_audiences,
        boolean_of("spec.requiresRepublish"),
        text_of("spec.volumeLifecycleModes", NONE),
        AGE,
    ),
)
