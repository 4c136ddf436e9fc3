"""Success policy: the rule that the succeeded indexes of a Job meet.

Pure functions. Source: v1.36 pkg/controller/job/success_policy.go.
"""

from __future__ import annotations

from kubeloop.controllers.job.indexes import IndexSet, parse_indexes
from kubeloop.kube.objects.api_types import SuccessPolicy, SuccessPolicyRule


def met_rule(policy: SuccessPolicy | None, completions: int, succeeded: IndexSet) -> int | None:
    """Return the position of the first rule that the succeeded indexes meet, or None."""
    if policy is None or not succeeded:
        return None
    for position, rule in enumerate(policy.rules):
        if _is_met(rule, completions, succeeded):
            return position
    return None


def _is_met(rule: SuccessPolicyRule, completions: int, succeeded: IndexSet) -> bool:
    count = rule.succeeded_count
    if rule.succeeded_indexes is None:
        return count is not None and len(succeeded) >= count
    required = parse_indexes(rule.succeeded_indexes, completions)
    if not required:
        return False
    reached = required.overlap(succeeded)
    return reached == len(required) or (count is not None and reached >= count)
