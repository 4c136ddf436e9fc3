"""Free ports of operators."""

from __future__ import annotations

import socket
import sys

import pytest

from kubeloop.testing.operator_faults import ports as module
from kubeloop.testing.operator_faults.ports import Ports


def test_ports_are_the_same_by_name():
    with Ports() as ports:
        metrics, health, again = ports.insert("{port:metrics} {port:health} {port:metrics}").split()
        assert metrics == again == ports.insert("{port:metrics}")
        assert ports.numbers == {"metrics": int(metrics), "health": int(health)}
        assert metrics != health


@pytest.mark.skipif(sys.platform != "linux", reason="needs the names of Linux")
def test_port_is_drawn_again_after_the_end_of_its_run_only(monkeypatch: pytest.MonkeyPatch):
    with Ports() as ports:
        first = int(ports.insert("{port:a}"))
        draws = iter([first, 20_001, first])
        monkeypatch.setattr(module, "_is_free", lambda port: True)
        monkeypatch.setattr(module.random, "randint", lambda first, last: next(draws))
        with Ports() as others:
            assert others.insert("{port:a}") == "20001"
    with Ports() as later:
        assert later.insert("{port:a}") == str(first)


def test_port_on_which_a_process_listens_is_not_drawn(monkeypatch: pytest.MonkeyPatch):
    with Ports() as ports, socket.create_server(("127.0.0.1", 0)) as server:
        draws = iter([server.getsockname()[1], free := int(ports.insert("{port:free}"))])
        monkeypatch.setattr(module.random, "randint", lambda first, last: next(draws))
        with pytest.raises(StopIteration):  # the second one belongs to another name
            ports.insert("{port:a}")
        assert ports.numbers == {"free": free}
