"""ControllerRevisions. Source: pkg/apis/apps/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.devcluster.printers.formatting import NONE
from kubeloop.devcluster.serializer.controller_revision_data import SentData, compact, is_same_data
from kubeloop.devcluster.validation.common.error_list import IMMUTABLE, ErrorList
from kubeloop.kube.json_object import JSON


def validate_controller_revision(errors: ErrorList, obj: JSON) -> None:
    errors.not_negative("revision", obj.get("revision"))
    if obj.get("data") is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(obj["data"], dict):
        errors.required("data", "data must be a valid JSON object")


def validate_controller_revision_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    errors.not_negative("revision", obj.get("revision"))
    data, before = obj.get("data"), old.get("data")
    if not is_same_data(data, before):
        # the message shows the data as it was sent
        errors.invalid("data", msgspec.Raw(compact(data.text)) if isinstance(data, SentData) else data, IMMUTABLE)


def _controller(obj: JSON, _now: datetime) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    owner = next((reference for reference in owners if reference.get("controller")), None)
    if owner is None:
        return NONE
    group = owner["apiVersion"].rpartition("/")[0]
    kind = f"{owner['kind']}.{group}" if group else owner["kind"]
    return f"{kind.lower()}/{owner['name']}"


STRATEGY = Strategy(
    validate=validate_controller_revision,
    validate_update=validate_controller_revision_update,
    update_steps="uws",
    cells=row(_controller, number_of("revision"), AGE),
)
