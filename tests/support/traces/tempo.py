"""Grafana Tempo with the configuration of deploy/observability/tempo.yaml. KUBELOOP_TEMPO names its binary (>= 3.0).

Only ports and folders differ from the committed configuration, so that the test covers the deployed one.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.comparison.real_apiserver import free_ports
from support.processes.cli_processes import ROOT

TEMPO = os.environ.get("KUBELOOP_TEMPO")
MANIFEST = ROOT / "deploy" / "observability" / "tempo.yaml"
_START_SECONDS = 90.0


@dataclass(frozen=True)
class Tempo:
    """url: address for queries. otlp_http, otlp_grpc: addresses for spans."""

    url: str
    otlp_http: str
    otlp_grpc: str

    def get(self, path: str, **query: str) -> Any:
        """Return the decoded response; None for 404."""
        request = urllib.request.Request(
            f"{self.url}{path}?{urllib.parse.urlencode(query)}", headers={"Accept": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{path} {query}: {error.code} {error.read().decode()}") from error

    def search(self, traceql: str) -> list[dict[str, Any]]:
        return self.get("/api/search", q=traceql, limit="200")["traces"]

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        return self.get(f"/api/traces/{trace_id}")


def committed_configuration() -> dict[str, Any]:
    (config_map,) = [
        obj
        for obj in yaml.safe_load_all(MANIFEST.read_text())
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == "tempo"
    ]
    return yaml.safe_load(config_map["data"]["tempo.yaml"])


@contextmanager
def running_tempo(folder: Path) -> Iterator[Tempo]:
    assert TEMPO is not None
    http, grpc, gossip, otlp_http, otlp_grpc = free_ports(5)
    config = committed_configuration()
    config["server"] |= {"http_listen_port": http, "grpc_listen_port": grpc, "http_listen_address": "127.0.0.1"}
    config["memberlist"] = {"bind_port": gossip, "bind_addr": ["127.0.0.1"]}
    protocols = config["distributor"]["receivers"]["otlp"]["protocols"]
    protocols["grpc"]["endpoint"], protocols["http"]["endpoint"] = f"127.0.0.1:{otlp_grpc}", f"127.0.0.1:{otlp_http}"
    storage = config["storage"]["trace"]
    storage["wal"]["path"], storage["local"]["path"] = str(folder / "wal"), str(folder / "blocks")
    # defaults are under /var/tempo, the volume of the manifest
    config["live_store"] = {"wal": {"path": str(folder / "live")}, "shutdown_marker_dir": str(folder / "marker")}
    config["backend_scheduler"] = {"local_work_path": str(folder / "work")}
    folder.mkdir(parents=True, exist_ok=True)
    path, log = folder / "tempo.yaml", folder / "tempo.log"
    path.write_text(yaml.safe_dump(config))
    with log.open("wb") as output:
        process = subprocess.Popen([TEMPO, f"-config.file={path}"], stdout=output, stderr=output)
    tempo = Tempo(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{otlp_http}", f"127.0.0.1:{otlp_grpc}")
    try:
        _wait_ready(tempo, process, log)
        yield tempo
    finally:
        process.kill()
        process.wait()


def _wait_ready(tempo: Tempo, process: subprocess.Popen[bytes], log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < _START_SECONDS:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{tempo.url}/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError("Tempo is not ready: " + log.read_text()[-2000:])
