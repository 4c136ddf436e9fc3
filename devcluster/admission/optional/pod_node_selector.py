"""PodNodeSelector: pods get the node selector of their namespace.

Source: plugin/pkg/admission/podnodeselector of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import ClassVar

from kubeloop.devcluster.admission.attributes import Attributes, Operation
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import sorted_map
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import label_value, qualified_name

_ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"


class PodNodeSelector(OptionalPlugin):
    operations: ClassVar[frozenset[Operation]] = frozenset({"CREATE"})

    def admit(self, request: Attributes) -> None:
        selector = self._checked_selector(request)
        if selector:
            spec = (request.object or {})["spec"]
            spec["nodeSelector"] = sorted_map({**selector, **spec.get("nodeSelector", {})})

    def check(self, request: Attributes) -> None:
        self._checked_selector(request)

    def _checked_selector(self, request: Attributes) -> dict[str, str]:
        """Return the selector of the namespace. Raises StatusError if that of the pod contradicts it."""
        pod = request.object or {}
        configured = self.environment.configuration.get("PodNodeSelector", {}).get("podNodeSelectorPluginConfig") or {}
        default = configured.get("clusterDefaultNodeSelector", "")
        selector = _labels(self.namespace_annotations(request).get(_ANNOTATION, default))
        own = pod["spec"].get("nodeSelector", {})
        if any(own.get(key, value) != value for key, value in selector.items()):
            message = "pod node label selector conflicts with its namespace node label selector"
            raise errors.forbidden(PODS, pod["metadata"].get("name", ""), message)
        permitted = _labels(configured.get(request.namespace, ""))
        if permitted and not {**selector, **own}.items() <= permitted.items():
            message = "pod node label selector labels conflict with its namespace whitelist"
            raise errors.forbidden(PODS, pod["metadata"].get("name", ""), message)
        return selector


def _labels(text: str) -> dict[str, str]:
    """Return the labels of "key=value,...". Raises StatusError 500. Source: labels.ConvertSelectorToLabelsMap."""
    labels: dict[str, str] = {}
    for part in text.split(",") if text else ():
        pair = part.split("=")
        if len(pair) != 2:
            raise errors.internal(f"invalid selector: [{' '.join(pair)}]")
        key, value = (side.strip() for side in pair)
        if problems := qualified_name(key):
            raise errors.internal(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(problems)}")
        if problems := label_value(value):
            raise errors.internal(f"[{key}]: Invalid value: {quoted(value)}: {'; '.join(problems)}")
        labels[key] = value
    return labels
