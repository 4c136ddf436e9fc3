"""Cost estimates of expressions from the sizes that a schema allows."""

from __future__ import annotations

from typing import Any

from kubeloop.cel.costs.cost_estimates import MAX_ESTIMATE, estimate_cost
from kubeloop.cel.program import CelProgram
from kubeloop.cel.types import schema_decl_type


def test_estimate_follows_size_limits_of_the_schema():
    def max_cost(schema: dict[str, Any], text: str) -> int:
        decl_type = schema_decl_type(schema, root=False)
        assert decl_type is not None
        return estimate_cost(CelProgram(text, {"self": decl_type.type}).node, {"self": decl_type})

    bounded = {"type": "array", "maxItems": 10, "items": {"type": "integer"}}
    assert max_cost(bounded, "self.all(x, x > 0)") == 10 * 5 + 2
    assert max_cost({"type": "array", "items": {"type": "string"}}, "self.all(x, self.all(y, x == y))") > 10**12
    assert max_cost({"type": "string"}, "self.contains('a')") < MAX_ESTIMATE
