"""ExtendedResourceToleration: pods tolerate the taints of nodes that are dedicated to the devices that they request.

Source: plugin/pkg/admission/extendedresourcetoleration of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.validation.pod.containers import is_extended
from kubeloop.kube.json_object import JSON


class ExtendedResourceToleration(OptionalPlugin):
    def admit(self, request: Attributes) -> None:
        spec = (request.object or {})["spec"]
        requested = {
            name
            for field in ("containers", "initContainers")
            for container in spec.get(field) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if is_extended(name)
        }
        for name in sorted(requested):
            _set_toleration(spec, {"key": name, "operator": "Exists", "effect": "NoSchedule"})


def _set_toleration(spec: JSON, toleration: JSON) -> None:
    """Add a toleration, in place of those with the same key, effect, operator and value."""
    present = spec.get("tolerations") or []
    if toleration in present:
        return
    replaced = [toleration if _identity(other) == _identity(toleration) else other for other in present]
    spec["tolerations"] = replaced if replaced != present else [*present, toleration]


def _identity(toleration: JSON) -> list[str]:
    return [toleration.get(field, "") for field in ("key", "effect", "operator", "value")]
