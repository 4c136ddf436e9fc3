"""String forms of CEL values."""

from __future__ import annotations

from kubeloop.cel.values import go_float


def test_go_float_formats_as_percent_g():
    assert [go_float(number) for number in (1.0, 0.1, 1e6, 123456.5, 1e-5, -2.5e30)] == [
        "1", "0.1", "1e+06", "123456.5", "1e-05", "-2.5e+30",
    ]  # fmt: skip
