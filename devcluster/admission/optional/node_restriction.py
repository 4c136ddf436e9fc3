"""NodeRestriction: nodes change their own Node and the objects of their own pods only.

The rules are in `node_rules`, which servers import for the first write of a node. Source:
plugin/pkg/admission/noderestriction of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import ClassVar

from kubeloop.devcluster.admission.attributes import Attributes, Operation
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.api.request_context import RequestContext

_NODES_GROUP = "system:nodes"


class NodeRestriction(OptionalPlugin):
    operations: ClassVar[frozenset[Operation]] = frozenset({"CREATE", "UPDATE", "DELETE"})
    resource = None

    def applies_to(self, context: RequestContext) -> bool:
        return _NODES_GROUP in (context.request.user.get("groups") or ())

    def admit(self, request: Attributes) -> None:
        from kubeloop.devcluster.admission.optional.node_rules import NodeRules

        NodeRules(self.environment).admit(request)
