"""metav1.DeleteOptions as data."""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.kube.json_object import JSON

META_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions. None: not given. grace_period_seconds None: the kind's own.

    A precondition that is "" is given, and met by no object.
    """

    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    precondition_uid: str | None = None
    precondition_resource_version: str | None = None
    dry_run: bool = False

    @property
    def leaves_dependents_open(self) -> bool:
        """Is nothing said of what becomes of the dependents?"""
        return self.propagation_policy is None and self.orphan_dependents is None

    @property
    def document(self) -> JSON:
        """As an object of the API."""
        preconditions = {"uid": self.precondition_uid, "resourceVersion": self.precondition_resource_version}
        given = {
            "gracePeriodSeconds": self.grace_period_seconds,
            "preconditions": {name: each for name, each in preconditions.items() if each is not None} or None,
            "orphanDependents": self.orphan_dependents,
            "propagationPolicy": self.propagation_policy,
            "dryRun": ["All"] if self.dry_run else None,
        }
        told = {"kind": "DeleteOptions", "apiVersion": META_VERSION}
        return told | {name: each for name, each in given.items() if each is not None}
