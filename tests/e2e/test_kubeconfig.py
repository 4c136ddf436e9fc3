"""`kubeloop kubeconfig` beside a running `kubeloop up`."""

from __future__ import annotations

import stat
from base64 import b64decode

import yaml
from cryptography import x509

from support.apiserver.tls_api import TlsApi
from support.objects.client_certificates import ClientCertificate
from support.processes.cli_processes import Kubeloop


def test_kubeconfig_authenticates_its_user(tmp_path):
    kubeloop, path, output = Kubeloop(tmp_path), tmp_path / "kubeconfig", tmp_path / "alice"
    with kubeloop.running("up", "--nodes=0", f"--kubeconfig={path}") as process:
        process.wait_for("export KUBECONFIG")
        arguments = ("--user=alice", "--group=dev,ops", f"--kubeconfig={path}")
        printed = kubeloop.run("kubeconfig", *arguments).stdout
        kubeloop.run("kubeconfig", *arguments, f"--output={output}")
        refused = kubeloop.run("kubeconfig", "--group=system:masters", f"--kubeconfig={path}")
        config = yaml.safe_load(printed)
        credentials = config["users"][0]["user"]
        pem = b64decode(credentials["client-certificate-data"])
        client = ClientCertificate(x509.load_pem_x509_certificate(pem), pem + b64decode(credentials["client-key-data"]))
        cluster = config["clusters"][0]["cluster"]
        api = TlsApi(cluster["server"], b64decode(cluster["certificate-authority-data"]).decode(), token="")
        user = api.who_am_i(client=client)
    assert (user["username"], user["groups"]) == ("alice", ["dev", "ops", "system:authenticated"])
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert yaml.safe_load(output.read_text())["current-context"] == "alice"
    assert refused.returncode == 2
    assert "system:masters group is not allowed" in refused.stderr
