"""AlwaysDeny: refuses every request. Source: plugin/pkg/admission/deny of Kubernetes v1.36."""

from __future__ import annotations

from typing import ClassVar

from kubeloop.devcluster.admission.attributes import Attributes, Operation
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, refusal


class AlwaysDeny(OptionalPlugin):
    operations: ClassVar[frozenset[Operation]] = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
    resource = None

    def admit(self, request: Attributes) -> None:
        raise refusal(request, "admission control is denying all modifications")
