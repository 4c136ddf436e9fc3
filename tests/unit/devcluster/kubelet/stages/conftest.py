"""Stages from texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeloop.devcluster.kubelet.stages.files import Stage, read_stages


@pytest.fixture
def read_stage_texts(tmp_path: Path) -> Callable[..., list[Stage]]:
    """Return a function that reads stages from YAML texts."""

    def read(*texts: str) -> list[Stage]:
        path = tmp_path / "stages.yaml"
        path.write_text("---".join(texts))
        return read_stages([path])

    return read
