"""AlwaysPullImages: images are pulled for every start of a container.

Source: plugin/pkg/admission/alwayspullimages of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, refusal
from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

_ALWAYS = "Always"


class AlwaysPullImages(OptionalPlugin):
    def admit(self, request: Attributes) -> None:
        for _, source, field in _pulled(request):
            source[field] = _ALWAYS

    def check(self, request: Attributes) -> None:
        refusals = [
            refusal(
                request, f'{path}: Unsupported value: {quoted(source.get(field, ""))}: supported values: "{_ALWAYS}"'
            )
            for path, source, field in _pulled(request)
            if source.get(field) != _ALWAYS
        ]
        if refusals:
            messages = list(dict.fromkeys(error.message for error in refusals))
            raise errors.internal(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def _pulled(request: Attributes) -> Iterator[tuple[str, JSON, str]]:
    """Yield path, owner and name of every pull policy; none of an update without new images."""
    spec = (request.object or {})["spec"]
    if request.old is not None:
        old_images = {container.get("image") for _, container in _containers(request.old["spec"])}
        if all(container.get("image") in old_images for _, container in _containers(spec)):
            return
    for path, container in _containers(spec):
        yield f"{path}.imagePullPolicy", container, "imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if (image := volume.get("image")) is not None:
            yield f"spec.volumes[{index}].image.pullPolicy", image, "pullPolicy"


def _containers(spec: JSON) -> Iterator[tuple[str, JSON]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container
