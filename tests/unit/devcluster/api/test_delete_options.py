"""metav1.DeleteOptions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.delete_options import DeleteOptions

JSON = dict[str, Any]
TYPE_META = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}


@pytest.mark.parametrize(
    ("options", "document"),
    [
        pytest.param(DeleteOptions(), {}, id="unset options are absent"),
        pytest.param(DeleteOptions(grace_period_seconds=0), {"gracePeriodSeconds": 0}, id="zero is set"),
        pytest.param(DeleteOptions(orphan_dependents=False), {"orphanDependents": False}, id="false is set"),
        pytest.param(DeleteOptions(dry_run=True), {"dryRun": ["All"]}, id="dry run"),
        pytest.param(DeleteOptions(precondition_uid=""), {"preconditions": {"uid": ""}}, id="empty precondition"),
        pytest.param(
            DeleteOptions(precondition_resource_version="7", propagation_policy="Orphan"),
            {"preconditions": {"resourceVersion": "7"}, "propagationPolicy": "Orphan"},
            id="policy and precondition",
        ),
    ],
)
def test_document_of_options(options: DeleteOptions, document: JSON):
    assert options.document == {**TYPE_META, **document}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(DeleteOptions(grace_period_seconds=1, dry_run=True), True, id="neither"),
        pytest.param(DeleteOptions(orphan_dependents=False), False, id="orphanDependents"),
        pytest.param(DeleteOptions(propagation_policy="Background"), False, id="propagationPolicy"),
    ],
)
def test_has_no_propagation_policy(options: DeleteOptions, expected: bool):
    assert options.has_no_propagation_policy is expected
