"""Generated requests for every operation of the served OpenAPI: no 5xx, no traceback, no answer against its schema.

400 cases of it; `make schemathesis` makes 10,000 (KUBELOOP_SCHEMATHESIS_CASES). Schemathesis draws the requests, wrong
ones among them; here they are turned to few names and to the right kinds, so that many get past the first check.
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

from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync

schemathesis = pytest.importorskip("schemathesis")

CASES = int(os.environ.get("KUBELOOP_SCHEMATHESIS_CASES", "400"))
_SPARE = 1.1  # of some operations there are not so many different requests
NAMES = ("a", "b", "default")
AS_KUBERNETES = re.compile(
    r"target\.(name|kind): |resourceVersion should not be set on objects to be created|"
    r"failed to create typed patch object|resourceVersion: Invalid value|doesn't match \$setElementOrder list|"
    r"does not contain declared merge key|failed to convert new object|strconv.ParseUint: parsing|unknown patch type|"
    r"expected a \[\]interface|list element types are not identical|unable to find api field|"
    r"value for key \d+ is not a map|no endpoints available for service"
)
"""What kube-apiserver v1.36.2, too, answers with 500, asked the same: errors that its own code does not class; and with
503 for services that nobody serves."""


def operations(url: str) -> list[Any]:
    found = []
    index = requests.get(f"{url}/openapi/v3", headers=HEADERS, timeout=60).json()
    for path in index["paths"].values():
        document = requests.get(url + path["serverRelativeURL"], headers=HEADERS, timeout=60).json()
        found.extend(result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations())
    return [each for each in found if not WATCHES.match(each.path)]


WATCHES = re.compile(r"/apis?/.*/watch/")
"""Paths whose answers do not end."""


HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def aimed(case: Any, name: str, sound: bool) -> Any:
    """The case with a name that may exist; `sound`: with the kind and name that its body ought to have."""
    for parameter, value in (("namespace", "default"), ("name", name)):
        if parameter in (case.path_parameters or {}):
            case.path_parameters[parameter] = value
    if case.query:
        case.query.pop("watch", None)  # a stream, which ends after half an hour
    if sound and isinstance(case.body, dict) and case.method in ("POST", "PUT"):
        kind = case.operation.definition.raw["x-kubernetes-group-version-kind"]
        case.body["kind"] = kind["kind"]
        case.body["apiVersion"] = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        if isinstance(metadata := case.body.setdefault("metadata", {}), dict):
            metadata["name"] = name
            for each in ("namespace", "resourceVersion", "uid"):
                metadata.pop(each, None)
    return case


def test_no_generated_request_is_answered_with_5xx_or_against_the_schema(tmp_path):
    wrong: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    with running_apiserver_sync(apiserver_command(tmp_path)) as (url, log), requests.Session() as http:
        found = operations(url)
        random.Random(3).shuffle(found)
        if len(found) > CASES:
            found = found[:CASES]
        each = max(1, round(CASES * _SPARE / len(found)))
        checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]

        def try_out(operation: Any) -> None:
            @seed(5)
            @settings(max_examples=each, deadline=None, suppress_health_check=list(HealthCheck), database=None,
                      phases=[Phase.generate])  # fmt: skip
            @given(
                case=operation.as_strategy(), name=st.sampled_from(NAMES), sound=st.sampled_from((True, True, False))
            )
            def once(case: Any, name: str, sound: bool) -> None:
                where = f"{case.method} {operation.path}"
                try:
                    answer = aimed(case, name, sound).call(base_url=url, headers=HEADERS, session=http, timeout=60)
                except requests.ConnectionError as error:
                    wrong[f"{where}: no answer: {error}; {case.body!r}"] += 1
                    return
                codes[answer.status_code] += 1
                if answer.status_code >= 500:
                    if not AS_KUBERNETES.search(answer.text):
                        wrong[f"{where}: {answer.status_code} {answer.text[:300]}"] += 1
                    return
                try:
                    case.validate_response(answer, checks=checks)
                except* AssertionError as failures:
                    wrong[f"{where}: {failures.exceptions[0]}"[:600]] += 1

            once()

        for operation in found:
            try_out(operation)
        told = log()
    print(f"{sum(codes.values())} cases of {len(found)} operations: {dict(codes)}")
    if "Traceback" in told:
        wrong[told[-4000:]] += 1
    assert not wrong, "\n\n".join(f"{count} x {what}" for what, count in wrong.most_common(20))
    assert codes[200] + codes[201] > 0.05 * sum(codes.values())  # enough of them got through


CHECKS = ("not_a_server_error", "response_schema_conformance", "content_type_conformance")
