"""Recorded responses of kube-apiserver to the requests of tests/support/comparison/custom_resource_requests.py.

`custom_resource_responses.json` holds the responses of kube-apiserver v1.36.2; tests/parity/test_custom_resources.py
sends the same requests to an installed kube-apiserver, and tests/support/comparison/record_responses.py records them
again.
"""

import json
from pathlib import Path

from support.apiserver.api_requests import InProcessApi
from support.comparison import custom_resource_requests
from support.comparison.custom_resource_requests import comparable, differences, steps

RESPONSES = Path(custom_resource_requests.__file__).parent / "custom_resource_responses.json"


async def test_custom_resource_responses_match_recorded_ones():
    api = InProcessApi(default_headers={"user_agent": "tester/1"})
    different = []
    for step, recorded in zip(steps(), json.loads(RESPONSES.read_text()), strict=True):
        response = await api.response(step.method, step.path, step.body, step.content_type, accept=step.accept)
        ours = {"step": step.about, **comparable(step, response)}
        different += [f"{step.about}: {difference}" for difference in differences(recorded, ours)]
    assert different == []
