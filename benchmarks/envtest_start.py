"""Start and stop of the control plane that envtest starts: of kubeloop, and of the real binaries beside it.

    KUBEBUILDER_ASSETS=DIR .venv/bin/python benchmarks/envtest_start.py        # DIR: real etcd and kube-apiserver
    ... --rounds 10

Takes the steps of controller-runtime one after another: `etcd --help`, etcd until /health, `kube-apiserver --help`,
kube-apiserver until /readyz, SIGTERM. Prints the medians of wall time and CPU time; both are started alternately.
"""

from __future__ import annotations

import argparse
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from kubeloop.cli.envtest import create_assets

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.comparison.real_apiserver import free_ports, write_key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as cache:
        assets = {"kubeloop": create_assets(Path(cache)), "real": Path(os.environ["KUBEBUILDER_ASSETS"])}
        run(assets["kubeloop"])  # compiles bytecode
        results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in assets}
        for _ in range(rounds):
            for name, folder in assets.items():
                results[name].append(run(folder))
    for name, measured in results.items():
        start, stop, cpu = (statistics.median(values) for values in zip(*measured, strict=True))
        print(f"{name:10} start {start:.2f} s, stop {stop:.2f} s, CPU {cpu:.2f} s")


def run(assets: Path) -> tuple[float, float, float]:
    """Start and stop a control plane once; return the seconds of both, and of CPU."""
    ports = free_ports(3)
    etcd_url, url = f"http://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[2]}"
    with tempfile.TemporaryDirectory() as folder:
        write_key(Path(folder, "sa.key"), ec.generate_private_key(ec.SECP256R1()))
        cpu_before, began = cpu_seconds(), time.monotonic()
        subprocess.run([assets / "etcd", "--help"], capture_output=True, check=True)
        etcd = start(assets / "etcd", f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
                     f"--listen-peer-urls=http://127.0.0.1:{ports[1]}", f"--data-dir={folder}/etcd",
                     "--unsafe-no-fsync=true")  # fmt: skip
        wait(f"{etcd_url}/health")
        subprocess.run([assets / "kube-apiserver", "--help"], capture_output=True, check=True)
        server = start(assets / "kube-apiserver", f"--etcd-servers={etcd_url}", "--bind-address=127.0.0.1",
                       f"--secure-port={ports[2]}", f"--cert-dir={folder}", "--service-cluster-ip-range=10.0.0.0/24",
                       "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount",
                       "--authorization-mode=RBAC", f"--service-account-issuer={url}/",
                       f"--service-account-key-file={folder}/sa.key",
                       f"--service-account-signing-key-file={folder}/sa.key")  # fmt: skip
        wait(f"{url}/readyz")
        ready = time.monotonic()
        for process in (server, etcd):
            process.terminate()
            process.wait(20)
        return ready - began, time.monotonic() - ready, cpu_seconds() - cpu_before


def start(program: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait(url: str) -> None:
    context = ssl._create_unverified_context()
    while True:
        try:
            urllib.request.urlopen(url, context=context if url.startswith("https") else None).close()
            return
        except OSError:
            time.sleep(0.01)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
