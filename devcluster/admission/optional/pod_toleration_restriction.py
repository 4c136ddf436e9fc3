"""PodTolerationRestriction: pods get the default tolerations of their namespace, and only those that it permits.

Source: plugin/pkg/admission/podtolerationrestriction of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.admission.tolerations import is_superset, merge_tolerations
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.serializer.request_bodies import parse_json
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.qos import qos_class

_DEFAULT = "scheduler.alpha.kubernetes.io/defaultTolerations"
_PERMITTED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MEMORY_PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}


class PodTolerationRestriction(OptionalPlugin):
    @property
    def _configuration(self) -> JSON:
        return self.environment.configuration.get("PodTolerationRestriction", {})

    def admit(self, request: Attributes) -> None:
        pod = request.object or {}
        spec = pod["spec"]
        added: list[JSON] = []
        if request.operation == "CREATE":
            own = self._tolerations(request, _DEFAULT)
            added += (self._configuration.get("default") or ()) if own is None else own
        if (pod.get("status", {}).get("qosClass") or qos_class(spec)) != "BestEffort":
            added.append(_MEMORY_PRESSURE)
        if added:
            spec["tolerations"] = merge_tolerations(spec.get("tolerations") or [], added)
        self.check(request)

    def check(self, request: Attributes) -> None:
        tolerations = (request.object or {})["spec"].get("tolerations")
        permitted = self._tolerations(request, _PERMITTED) if tolerations else []
        scope = "namespace"
        if permitted is None:
            permitted, scope = self._configuration.get("whitelist") or [], "cluster"
        if permitted and not all(
            any(is_superset(wide, toleration) for wide in permitted) for toleration in tolerations
        ):
            raise errors.internal(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                f"{scope} whitelist"
            )

    def _tolerations(self, request: Attributes, annotation: str) -> list[JSON] | None:
        """Return the tolerations in an annotation of the namespace, None without it. Raises StatusError 500."""
        text = self.namespace_annotations(request).get(annotation)
        if not text:
            return None if text is None else []
        try:
            tolerations: Any = parse_json(text.encode())[0]
        except ValueError as error:
            raise errors.internal(str(error)) from error
        if type(tolerations) is not list or not all(type(toleration) is dict for toleration in tolerations):
            raise errors.internal(f"the annotation {annotation} is no list of tolerations")
        return tolerations
