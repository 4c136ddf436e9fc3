"""The API server behind the executable: errors of its start."""

from __future__ import annotations

import socket

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.envtest.flags import flag_table, parse_flags
from kubeloop.testing.envtest.server import serve


def test_taken_port_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        arguments = [
            "--etcd-servers=http://127.0.0.1:1",
            "--bind-address=127.0.0.1",
            f"--secure-port={other.getsockname()[1]}",
            f"--cert-dir={tmp_path}",
        ]
        with pytest.raises(UserError, match=r"--secure-port: port \d+ is taken"):
            serve(parse_flags(flag_table("kube-apiserver"), arguments), None)
