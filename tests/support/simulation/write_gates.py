"""Limits of concurrent writes for tests."""

from __future__ import annotations

from kubeloop.kube.client.write_gate import WriteLimit


class FixedLimit(WriteLimit):
    """Permits two writes at the same time, whatever bind requests take."""

    VALUE: float = 2

    def value(self, now: float) -> float:
        return self.VALUE
