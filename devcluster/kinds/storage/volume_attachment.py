"""VolumeAttachments. Source: pkg/apis/storage/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.kinds.core.persistent_volume import validate_persistent_volume_spec
from kubeloop.devcluster.printers.columns import AGE, boolean_of, row, text_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.volumes import validate_csi_driver_name
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

_METADATA_LIMIT, _MESSAGE_LIMIT = 256 * 1024, 1024


def validate_volume_attachment(errors: ErrorList, obj: JSON) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    source = spec.get("source") or {}
    validate_csi_driver_name(errors, "spec.attacher", spec.get("attacher", ""))
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    one_of_two = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if volume is None and inline is None:
        errors.required("spec.source", one_of_two)
    elif volume is not None and inline is not None:
        errors.forbidden("spec.source", one_of_two)
    elif volume == "":
        errors.required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        validate_persistent_volume_spec(errors, "spec.source.inlineVolumeSpec", inline, inline=True)
    node = spec.get("nodeName", "")
    errors.check("spec.nodeName", node, dns_subdomain)
    _validate_attachment_status(errors, status)
    errors.check("spec.source.persistentVolumeName", volume, dns_subdomain)


def _validate_attachment_status(errors: ErrorList, status: JSON) -> None:
    metadata = status.get("attachmentMetadata", {})
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > _METADATA_LIMIT:
        errors.too_long("status.attachmentMetadata", _METADATA_LIMIT)
    for name in ("attachError", "detachError"):
        volume_error = status.get(name) or {}
        if len(volume_error.get("message", "").encode()) > _MESSAGE_LIMIT:
            errors.too_long(f"status.{name}.message", _METADATA_LIMIT)  # v1.36 names this limit
        if volume_error.get("errorCode", 0) < 0:
            detail = "must be between 0 and 2147483647, inclusive"
            errors.invalid(f"status.{name}.errorCode", volume_error["errorCode"], detail)


def validate_volume_attachment_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    _validate_attachment_status(errors, obj.get("status") or {})


STRATEGY = Strategy(
    status_metadata=(),
    validate=validate_volume_attachment,
    validate_update=update_as_create(
        validate_volume_attachment, ("spec", "storage/v1.VolumeAttachmentSpec"), unchanged=True
    ),
    validate_subresources={"status": validate_volume_attachment_status_update},
    update_steps="ws",
    subresource_steps="ws",
    cells=row(
        text_of("spec.attacher"),
        text_of("spec.source.persistentVolumeName"),
        text_of("spec.nodeName"),
        boolean_of("status.attached"),
        AGE,
    ),
)
