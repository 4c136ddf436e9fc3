"""Rows of core kinds with few columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.core import component_status, config_map, service_account

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
METADATA = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z"}


@pytest.mark.parametrize(
    ("strategy", "fields", "cells"),
    [
        pytest.param(component_status.STRATEGY, {}, ["x", "Unknown", "", ""], id="component status"),
        pytest.param(
            config_map.STRATEGY, {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}, ["x", 2, "5m"], id="config map"
        ),
        pytest.param(service_account.STRATEGY, {"secrets": [{"name": "t"}]}, ["x", "5m"], id="service account"),
    ],
)
def test_row_of_a_kind(strategy: Strategy, fields: dict[str, Any], cells: list[Any]):
    assert strategy.cells is not None
    assert strategy.cells({"metadata": METADATA, **fields}, NOW) == cells
