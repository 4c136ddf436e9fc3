"""CrashLoopBackOff: delays and message."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.containers.crash_loop_backoff import restart_delay_seconds, waiting_message


def test_restart_delay_doubles_from_ten_seconds_to_five_minutes():
    assert [restart_delay_seconds(restarts) for restarts in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert restart_delay_seconds(10_000) == 300


@pytest.mark.parametrize(("seconds", "text"), [(10.0, "10s"), (160.0, "2m40s"), (300.0, "5m0s")])
def test_waiting_message_states_delay_as_go_duration(seconds, text):
    message = waiting_message(seconds, "web", "web-0_default(uid)")
    assert message == f"back-off {text} restarting failed container=web pod=web-0_default(uid)"
