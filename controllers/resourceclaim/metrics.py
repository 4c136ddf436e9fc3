"""resourceclaim_controller_* metrics. Source: v1.36 pkg/controller/resourceclaim/metrics/metrics.go."""

from __future__ import annotations

from collections import Counter

from kubeloop.controllers.resourceclaim.pod_claim_plan import POD_CLAIM_ANNOTATION, requests_admin_access
from kubeloop.kube.metric_families import MetricFamilies
from kubeloop.kube.objects.device_types import DeviceClaim, ResourceClaim
from kubeloop.kube.objects.pod_claims import EXTENDED_RESOURCE_ANNOTATION


class ResourceClaimMetrics:
    def __init__(self, families: MetricFamilies) -> None:
        self._creations = families.counter(
            "resourceclaim_controller_creates_total",
            "Number of ResourceClaims creation requests, categorized by creation status and admin access",
            ("status", "admin_access"),
        )
        self._claims = families.gauge(
            "resourceclaim_controller_resource_claims",
            "Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be"
            " 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty"
            " (manually created by a user).",
            ("allocated", "admin_access", "source"),
        )
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def created(self, devices: DeviceClaim, *, succeeded: bool) -> None:
        """Record a request that creates a claim for these devices."""
        status = "success" if succeeded else "failure"
        self._creations.labels(status, _text(requests_admin_access(devices))).inc()

    def changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Count a claim that has been added (old is None), changed or deleted (new is None)."""
        before = None if old is None else claim_labels(old)
        after = None if new is None else claim_labels(new)
        if before == after:
            return
        for labels, change in ((before, -1), (after, 1)):
            if labels is not None:
                self._counts[labels] += change
                self._claims.labels(*labels).set(self._counts[labels])


def claim_labels(claim: ResourceClaim) -> tuple[str, str, str]:
    """Return the labels under which a claim counts: allocated, admin_access, source."""
    annotations = claim.metadata.annotations
    source = ""
    if annotations.get(EXTENDED_RESOURCE_ANNOTATION) == "true":
        source = "extended_resource"
    elif annotations.get(POD_CLAIM_ANNOTATION):
        source = "resource_claim_template"
    allocated = claim.status.allocation is not None
    return _text(allocated), _text(requests_admin_access(claim.spec.devices)), source


def _text(value: bool) -> str:
    return "true" if value else "false"
