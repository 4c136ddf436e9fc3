"""Query options of writes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.handlers.writing.write_options import read_dry_run, writer_of


@pytest.mark.parametrize(
    ("query", "user_agent", "manager"),
    [
        pytest.param("?fieldManager=me", "kubectl/v1.36", "me", id="field manager"),
        pytest.param("", "kubectl/v1.36 (linux)", "kubectl", id="user agent"),
        pytest.param("", "x" * 200, "x" * 128, id="long user agent"),
        pytest.param("", "", "unknown", id="neither"),
    ],
)
def test_field_manager_of_a_request(query: str, user_agent: str, manager: str):
    assert writer_of(ApiRequest.of("POST", f"/x{query}", {"User-Agent": user_agent})).manager == manager


@pytest.mark.parametrize(("query", "dry_run"), [("", False), ("?dryRun=All", True)])
def test_dry_run_of_a_request(query: str, dry_run: bool):
    assert read_dry_run(ApiRequest.of("POST", f"/x{query}"), "CreateOptions") is dry_run


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("?dryRun=Some", 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        (
            "?dryRun=x&fieldValidation=x",
            '[dryRun: Unsupported value: ["x"]: supported values: "All", fieldValidation: Unsupported value: "x": '
            'supported values: "", "Ignore", "Strict", "Warn"]',
        ),
        (f"?fieldManager={'x' * 129}", "fieldManager: Too long: may not be more than 128 bytes"),
    ],
)
def test_invalid_options_are_refused(query: str, reason: str):
    with pytest.raises(StatusError) as raised:
        read_dry_run(ApiRequest.of("POST", f"/x{query}"), "CreateOptions")
    assert (raised.value.code, raised.value.message) == (422, f'CreateOptions.meta.k8s.io "" is invalid: {reason}')
