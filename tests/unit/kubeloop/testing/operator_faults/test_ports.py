"""Free ports of operators."""

from __future__ import annotations

import random
import socket
import sys

import pytest

from kubeloop.testing.operator_faults import ports as module
from kubeloop.testing.operator_faults.ports import Ports


class FixedDraws(random.Random):
    """Draws these numbers."""

    def __init__(self, *draws: int) -> None:
        super().__init__()
        self._draws = iter(draws)

    def randint(self, a: int, b: int) -> int:
        return next(self._draws)


def test_ports_are_the_same_by_name():
    with Ports(random.Random()) as ports:
        metrics, health, again = ports.insert("{port:metrics} {port:health} {port:metrics}").split()
        assert metrics == again == ports.insert("{port:metrics}")
        assert ports.numbers == {"metrics": int(metrics), "health": int(health)}
        assert metrics != health


@pytest.mark.skipif(sys.platform != "linux", reason="needs the names of Linux")
def test_port_is_drawn_again_after_the_end_of_its_run_only(monkeypatch: pytest.MonkeyPatch):
    with Ports(random.Random()) as ports:
        first = int(ports.insert("{port:a}"))
        monkeypatch.setattr(module, "_is_free", lambda port: True)
        with Ports(FixedDraws(first, 20_001)) as others:
            assert others.insert("{port:a}") == "20001"
    with Ports(FixedDraws(first)) as later:
        assert later.insert("{port:a}") == str(first)


def test_port_on_which_a_process_listens_is_not_drawn():
    with Ports(random.Random()) as others:
        free = int(others.insert("{port:a}"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        used = server.getsockname()[1]
        with Ports(FixedDraws(used, free)) as ports:
            assert ports.insert("{port:a}") == str(free)
