"""Features that a stored pod spec uses: an update is validated as if their gates were enabled.

An object that was written while a gate was enabled can thus still be updated. Source: pkg/api/pod/util.go
(GetValidationOptionsFromPodSpecAndMeta) of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.devcluster.validation.common.error_list import ErrorList, enabling
from kubeloop.devcluster.validation.pod.scheduling import violates_unmerged_keys
from kubeloop.kube.json_object import JSON


def error_list_for_update(error_list: type[ErrorList], old: JSON) -> type[ErrorList]:
    """Return the class of error lists whose gates apply to an update of the spec `old`."""
    gates = error_list.gates
    used = frozenset(gate for gate, is_used in _IN_USE.items() if not gates.enabled(gate) and is_used(old))
    return enabling(error_list, used) if used else error_list


def _restarts_all_containers(spec: JSON) -> bool:
    """Return True for the action RestartAllContainers, or rules of a sidecar container."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for kind in ("containers", "initContainers")
        for container in spec.get(kind) or ()
        for rule in container.get("restartPolicyRules") or ()
    ) or any(
        container.get("restartPolicy") == "Always" and container.get("restartPolicyRules")
        for container in spec.get("initContainers") or ()
    )


def _reads_environment_from_files(spec: JSON) -> bool:
    return any(
        "fileKeyRef" in (variable.get("valueFrom") or ())
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(kind) or ()
        for variable in container.get("env") or ()
    )


_IN_USE: dict[str, Callable[[JSON], bool]] = {
    "EnvFiles": _reads_environment_from_files,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": lambda spec: any(
        violates_unmerged_keys(constraint) for constraint in spec.get("topologySpreadConstraints") or ()
    ),
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "SELinuxMount": lambda spec: "seLinuxChangePolicy" in (spec.get("securityContext") or {}),
    "TaintTolerationComparisonOperators": lambda spec: any(
        toleration.get("operator") in ("Gt", "Lt") for toleration in spec.get("tolerations") or ()
    ),
    "UserNamespacesHostNetworkSupport": lambda spec: spec.get("hostUsers") is False and bool(spec.get("hostNetwork")),
}
"""By gate, whether a spec uses its feature."""
