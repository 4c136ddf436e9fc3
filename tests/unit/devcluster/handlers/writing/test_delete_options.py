"""DeleteOptions of a body or query."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.handlers.writing.delete_options import read_delete_options
from support.apiserver.api_requests import request

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("query", "body", "options"),
    [
        pytest.param("", None, DeleteOptions(), id="none"),
        pytest.param(
            "?gracePeriodSeconds=0&propagationPolicy=Orphan&dryRun=All&uid=u&resourceVersion=7",
            None,
            DeleteOptions(0, "Orphan", None, "u", "7", dry_run=True),
            id="query",
        ),
        pytest.param("?orphanDependents=false", None, DeleteOptions(orphan_dependents=False), id="false in the query"),
        pytest.param("?dryRun=All", {"gracePeriodSeconds": 1}, DeleteOptions(1), id="body instead of the query"),
        pytest.param("", {"preconditions": {"uid": ""}}, DeleteOptions(precondition_uid=""), id="empty precondition"),
    ],
)
def test_options_of_a_request(query: str, body: JSON | None, options: DeleteOptions):
    assert read_delete_options(request("DELETE", f"/x{query}", body)) == options


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(
            {"kind": "Foo"}, 400, 'no kind "Foo" is registered for version "meta.k8s.io/v1"', id="unknown kind"
        ),
        pytest.param(
            {"kind": "Status", "apiVersion": "v7"},
            400,
            "converting (v1.Status) to (v1.DeleteOptions): unknown conversion",
            id="kind of every version",
        ),
        pytest.param(
            {"propagationPolicy": "x"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x": supported values: '
            '"Foreground", "Background", "Orphan", "nil"',
            id="policy",
        ),
        pytest.param(
            {"orphanDependents": True, "propagationPolicy": "Orphan"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": orphanDependents and '
            "deletionPropagation cannot be both set",
            id="two policies",
        ),
        pytest.param(
            {"dryRun": ["Some"]},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
            id="dry run",
        ),
    ],
)
def test_invalid_options_are_refused(body: JSON, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        read_delete_options(request("DELETE", "/x", body))
    assert (raised.value.code, raised.value.message) == (code, message)
