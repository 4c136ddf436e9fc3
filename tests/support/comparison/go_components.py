"""kube-controller-manager and kube-scheduler as processes on an API server of kubeloop."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from support.comparison.real_apiserver import Authority, find_binary, free_ports, write_key

COMPONENTS = ("kube-controller-manager", "kube-scheduler")

# Log messages about a faulty server. Messages about stale caches and conflicts occur with any server.
SERVER_ERRORS = re.compile(
    r"proto:|decod|marshal|Unauthorized|credentials|cceptable|media type|ailed to (list|watch)|could not find the req|"
    r"nable to get|is invalid|Invalid value|Internal error|panic|timed out|refused|unexpected|malformed|not supported"
)
NO_METRICS = re.compile(r"unable to (get|fetch) metrics")


class GoComponents:
    """The two processes. They log into `folder`."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self.folder = folder
        authority = Authority(folder / "certificates")
        write_key(folder / "accounts.key", ec.generate_private_key(ec.SECP256R1()))
        signing = [f"--cluster-signing-cert-file={authority.certificate}"]
        signing += [f"--cluster-signing-key-file={authority.key}"]
        manager = [
            "--controllers=*",
            "--horizontal-pod-autoscaler-sync-period=2s",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={authority.certificate}",
        ]
        self._processes = [
            self._start(name, kubeconfig, flags)
            for name, flags in zip(COMPONENTS, ([*manager, *signing], []), strict=True)
        ]

    def _start(self, name: str, kubeconfig: str, extra_flags: list[str]) -> subprocess.Popen[bytes]:
        binary = find_binary(name)
        assert binary is not None
        flags = [f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")]
        flags += ["--leader-elect=true", "--authentication-skip-lookup", f"--cert-dir={self.folder / name}"]
        flags += [f"--secure-port={free_ports(1)[0]}", "--bind-address=127.0.0.1"]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([binary, *flags, *extra_flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def server_errors(self) -> list[str]:
        """Return logged errors and warnings about the API server."""
        lines = (line for name in COMPONENTS for line in (self.folder / f"{name}.log").read_text().splitlines())
        errors = (line for line in lines if re.match(r"(\?+ )?[EWF]\d{4} ", line) and SERVER_ERRORS.search(line))
        return [line for line in errors if not NO_METRICS.search(line)]
