"""Malformed and hostile requests to all servers: no 5xx, no traceback, no memory kept. `make hostile` sends 100,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.hostile.campaign import run_campaign


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
async def test_servers_survive_hostile_requests(tmp_path):
    report = await run_campaign(tmp_path, seed=1, requests=1_000, connections=200)
    assert not report.problems, report.text()
    assert report.answered > 500
