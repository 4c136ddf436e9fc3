"""Recorded responses of kube-apiserver to the requests of tests/support/comparison/policy_cases.yaml.

`policy_responses.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_admission_policies.py sends the
same requests to an installed kube-apiserver, and tests/support/comparison/record_responses.py records them again.
"""

import json
from pathlib import Path

from support.apiserver.api_requests import InProcessApi
from support.comparison import policy_cases
from support.comparison.policy_cases import comparable, judged_requests, setup_requests

RESPONSES = Path(policy_cases.__file__).parent / "policy_responses.json"


async def test_admission_policy_responses_match_recorded_ones():
    api = InProcessApi()
    for step in setup_requests():
        response = await api.response(step.method, step.path, step.body, step.content_type)
        assert response.status == 201, (step, response.content)
    different = []
    for step, recorded in zip(judged_requests(), json.loads(RESPONSES.read_text()), strict=True):
        response = await api.response(step.method, step.path, step.body, step.content_type)
        ours = {"step": step.about, **comparable(response)}
        if ours != recorded:
            different.append(f"recorded {recorded}, ours {ours}")
    assert different == []
