"""LimitPodHardAntiAffinityTopology: required anti-affinity of pods must be that of nodes.

Source: plugin/pkg/admission/antiaffinity of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import PODS

_HOST_NAME = "kubernetes.io/hostname"


class LimitPodHardAntiAffinityTopology(OptionalPlugin):
    def check(self, request: Attributes) -> None:
        pod = request.object or {}
        anti_affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in anti_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            if (key := term.get("topologyKey", "")) != _HOST_NAME:
                message = (
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key "
                    f"{_HOST_NAME} is allowed"
                )
                raise errors.forbidden(PODS, pod["metadata"].get("name", ""), message)
