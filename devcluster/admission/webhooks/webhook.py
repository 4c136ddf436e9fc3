"""One webhook of a configuration: its identity, rules and match conditions."""

from __future__ import annotations

from typing import Literal

from kubeloop.devcluster.admission.policies.policy_dispatcher import MatchConditions
from kubeloop.kube.json_object import JSON
from kubeloop.kube.policy_cel.environment import Environment

CallType = Literal["admit", "validating"]
"""Type of a webhook's calls in metrics."""


class Webhook:
    """A webhook. uid: distinguishes it from others with the same name. call_type: the label `type` of its metrics."""

    def __init__(self, configuration: str, index: int, spec: JSON, call_type: CallType) -> None:
        self.name: str = spec["name"]
        self.configuration = configuration
        self.uid = f"{configuration}/{index}"
        self.spec = spec
        self.call_type: CallType = call_type
        self.ignores_failures = spec.get("failurePolicy") == "Ignore"
        self.is_reinvoked = spec.get("reinvocationPolicy") == "IfNeeded"
        self.match = {
            "namespaceSelector": spec.get("namespaceSelector") or {},
            "objectSelector": spec.get("objectSelector") or {},
            "matchPolicy": spec.get("matchPolicy"),
            "resourceRules": spec.get("rules") or (),
        }
        """In the form of a policy's matchConstraints."""
        self.conditions = (
            MatchConditions(spec, Environment(has_params=False, variable_types=None))
            if spec.get("matchConditions")
            else None
        )
