"""Generated requests for every operation of the served OpenAPI: no 5xx, no traceback, responses match their schema.

Sends 400 requests; `make schemathesis` sends 10,000 (KUBELOOP_SCHEMATHESIS_CASES). Schemathesis generates valid and
invalid requests; the test replaces names and kinds by existing ones in many of them, so that more pass validation.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from support.apiserver.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.comparison.expected_errors import EXPECTED_ERRORS

schemathesis = pytest.importorskip("schemathesis")

CASES = int(os.environ.get("KUBELOOP_SCHEMATHESIS_CASES", "400"))
_SURPLUS = 1.1  # some operations have fewer distinct requests
NAMES = ("a", "b", "default")


def read_operations(url: str) -> list[Any]:
    operations = []
    index = requests.get(f"{url}/openapi/v3", headers=HEADERS, timeout=60).json()
    for path in index["paths"].values():
        document = requests.get(url + path["serverRelativeURL"], headers=HEADERS, timeout=60).json()
        operations.extend(result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations())
    return [operation for operation in operations if not WATCHES.match(operation.path)]


WATCHES = re.compile(r"/apis?/.*/watch/")
"""Paths whose responses do not end."""


HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def adjusted(case: Any, name: str, valid_body: bool) -> Any:
    """Return the case with a name that may exist. valid_body: also set the kind and name in its body."""
    for parameter, value in (("namespace", "default"), ("name", name)):
        if parameter in (case.path_parameters or {}):
            case.path_parameters[parameter] = value
    if case.query:
        case.query.pop("watch", None)  # a stream that ends after half an hour
    if valid_body and isinstance(case.body, dict) and case.method in ("POST", "PUT"):
        kind = case.operation.definition.raw["x-kubernetes-group-version-kind"]
        case.body["kind"] = kind["kind"]
        case.body["apiVersion"] = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        if isinstance(metadata := case.body.setdefault("metadata", {}), dict):
            metadata["name"] = name
            for field in ("namespace", "resourceVersion", "uid"):
                metadata.pop(field, None)
    return case


def test_generated_requests_get_valid_responses(tmp_path):
    problems: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    with running_apiserver_sync(apiserver_command(tmp_path)) as (url, read_log), requests.Session() as http:
        operations = read_operations(url)
        random.Random(3).shuffle(operations)
        if len(operations) > CASES:
            operations = operations[:CASES]
        cases_per_operation = max(1, round(CASES * _SURPLUS / len(operations)))
        checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]

        def check_operation(operation: Any) -> None:
            @seed(5)
            @settings(
                max_examples=cases_per_operation,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=[Phase.generate],
            )
            @given(
                case=operation.as_strategy(),
                name=st.sampled_from(NAMES),
                valid_body=st.sampled_from((True, True, False)),
            )
            def check_case(case: Any, name: str, valid_body: bool) -> None:
                request = f"{case.method} {operation.path}"
                try:
                    response = adjusted(case, name, valid_body).call(
                        base_url=url, headers=HEADERS, session=http, timeout=60
                    )
                except requests.ConnectionError as error:
                    problems[f"{request}: no response: {error}; {case.body!r}"] += 1
                    return
                codes[response.status_code] += 1
                if response.status_code >= 500:
                    if not EXPECTED_ERRORS.search(response.text):
                        problems[f"{request}: {response.status_code} {response.text[:300]}"] += 1
                    return
                try:
                    case.validate_response(response, checks=checks)
                except* AssertionError as failures:
                    problems[f"{request}: {failures.exceptions[0]}"[:600]] += 1

            check_case()

        for operation in operations:
            check_operation(operation)
        log = read_log()
    print(f"{sum(codes.values())} cases of {len(operations)} operations: {dict(codes)}")
    if "Traceback" in log:
        problems[log[-4000:]] += 1
    assert not problems, "\n\n".join(f"{count} x {problem}" for problem, count in problems.most_common(20))
    assert codes[200] + codes[201] > 0.05 * sum(codes.values())  # enough requests succeeded


CHECKS = ("not_a_server_error", "response_schema_conformance", "content_type_conformance")
