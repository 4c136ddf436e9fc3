"""Recorded responses of kube-apiserver to the requests of tests/support/comparison/rule_cases.py.

`rule_responses.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_validation_rules.py sends the
same requests to an installed kube-apiserver, and tests/support/comparison/record_responses.py records them again.
"""

import json
from pathlib import Path

from support.apiserver.api_requests import InProcessApi
from support.comparison import rule_cases
from support.comparison.rule_cases import comparable, steps

RESPONSES = Path(rule_cases.__file__).parent / "rule_responses.json"


async def test_validation_rule_responses_match_recorded_ones():
    api = InProcessApi()
    different = []
    for step, recorded in zip(steps(), json.loads(RESPONSES.read_text()), strict=True):
        response = await api.response(step.method, step.path, step.body, step.content_type)
        ours = {"step": step.about, **comparable(response)}
        if ours != recorded:
            different.append(f"recorded {recorded}, ours {ours}")
    assert different == []
