"""Other users of the machine can open no file of a running development cluster, and only its loopback ports."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from support.processes.cli_processes import WEB, Kubectl

LISTENING = "0A"  # state in /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def children(pid: int) -> set[int]:
    """Return the process and its descendants."""
    direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid}.union(*(children(int(child)) for child in direct))


def listening_addresses(pids: set[int]) -> list[str]:
    """Return the hexadecimal local addresses of listening TCP sockets."""
    inodes = set()
    for entry in (entry for pid in pids for entry in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                addresses.append(fields[1].partition(":")[0])
    return addresses


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_other_users_read_no_file_and_reach_no_port(kubeloop, tmp_path, needs_kubectl):
    before = os.umask(0)
    try:
        options = (f"--data-dir={tmp_path / 'data'}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
        with kubeloop.running("up", "-f", WEB, *options) as up:
            up.wait_for("runs until Ctrl-C")
            Kubectl(str(tmp_path / "kubeconfig"), tmp_path)("create", "secret", "generic", "s", "--from-literal=a=b")
            found = {path.relative_to(tmp_path): path.lstat().st_mode for path in tmp_path.rglob("*")}
            addresses = listening_addresses(children(up.process.pid))
    finally:
        os.umask(before)
    names = {path.name for path in found}
    assert {"store.db", "store.db-wal", "token", "server.pem", "kubeconfig"} <= names
    own = {path: mode for path, mode in found.items() if ".kube" not in path.parts}  # kubectl's cache
    assert not {str(path): oct(mode) for path, mode in own.items() if stat.S_ISREG(mode) and mode & 0o077}
    assert not [path for path, mode in own.items() if stat.S_ISSOCK(mode)]
    assert len(addresses) == 2  # API server and endpoint
    assert set(addresses) <= LOOPBACK
