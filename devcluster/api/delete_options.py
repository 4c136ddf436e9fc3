"""metav1.DeleteOptions as a dataclass."""

from __future__ import annotations

import msgspec

from kubeloop.kube.json_object import JSON

META_VERSION = "meta.k8s.io/v1"


class DeleteOptions(msgspec.Struct, frozen=True):
    """metav1.DeleteOptions; None for unset options. An unset grace period means the kind's default.

    An empty precondition is set, and no object satisfies it.
    """

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    precondition_uid: str | None = None
    precondition_resource_version: str | None = None
    dry_run: bool = False

    @property
    def has_no_propagation_policy(self) -> bool:
        """True if the options do not define the handling of dependents."""
        return self.propagation_policy is None and self.orphan_dependents is None

    @property
    def document(self) -> JSON:
        """The options as JSON object."""
        preconditions = {"uid": self.precondition_uid, "resourceVersion": self.precondition_resource_version}
        options = {
            "gracePeriodSeconds": self.grace_period_seconds,
            "preconditions": {name: value for name, value in preconditions.items() if value is not None} or None,
            "orphanDependents": self.orphan_dependents,
            "propagationPolicy": self.propagation_policy,
            "dryRun": ["All"] if self.dry_run else None,
        }
        document = {"kind": "DeleteOptions", "apiVersion": META_VERSION}
        return document | {name: value for name, value in options.items() if value is not None}
