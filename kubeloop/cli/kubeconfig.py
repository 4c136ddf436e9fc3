"""`kubeloop kubeconfig`: print a kubeconfig of a user and groups, with a client certificate.

The cluster itself issues the certificate: the command creates a CertificateSigningRequest, approves it as the user of
the present kubeconfig, and waits until a controller signs it.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kubeloop.cli.options.options import KubeconfigOptions
from kubeloop.devcluster.storage.private_files import write_private_file
from kubeloop.kube import yaml
from kubeloop.kube.auth.certificate_authority import private_key_pem
from kubeloop.kube.auth.credentials import connect
from kubeloop.kube.auth.kubeconfig import read_kubeconfig
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.resources import CERTIFICATE_SIGNING_REQUESTS
from kubeloop.kube.user_error import UserError
from kubeloop.process.api_server_check import unreachable_error
from kubeloop.process.process_files import development_kubeconfig
from kubeloop.process.signals import run_until_interrupted

_SIGNER = "kubernetes.io/kube-apiserver-client"
_SIGN_SECONDS, _POLL_SECONDS = 10.0, 0.05
_CLUSTER = "kubeloop"


def kubeconfig(options: KubeconfigOptions) -> int:
    """Run the command and return its exit code. Raises UserError."""
    paths = development_kubeconfig(options.kubeconfig)
    cluster = read_kubeconfig(paths, None).cluster
    groups = [group for text in options.groups for group in text.split(",") if group]
    credentials: dict[str, Any] = {}

    async def main() -> int:
        transport = await connect(paths)
        client = ApiClient(transport, clock=SystemClock(), rng=random.Random())
        try:
            credentials.update(await _credentials(client, options.user, groups, round(options.duration)))
        except ApiError as error:
            raise UserError(error.status.message or str(error), hint="see --user and --group") from None
        except ServerUnreachable as error:
            raise unreachable_error(transport.server, error) from None
        finally:
            await client.close()
        return 0

    if code := run_until_interrupted(main(), interrupted=130):
        return code
    authority = cluster.content("certificate-authority")
    text = yaml.write(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": _CLUSTER,
                    "cluster": {
                        "server": options.server or cluster.text("server"),
                        **({"certificate-authority-data": _base64(authority)} if authority else {}),
                    },
                }
            ],
            "users": [{"name": options.user, "user": credentials}],
            "contexts": [{"name": options.user, "context": {"cluster": _CLUSTER, "user": options.user}}],
            "current-context": options.user,
        },
        sort_keys=False,
    )
    if options.output is None:
        print(text, end="")
        return 0
    try:
        write_private_file(Path(options.output), text.encode())
    except OSError as error:
        raise UserError(f"cannot write {options.output}: {error.strerror}", hint="choose another --output") from None
    return 0


async def _credentials(client: ApiClient, user: str, groups: Sequence[str], seconds: int) -> dict[str, str]:
    """Return the certificate and key of a user, as a kubeconfig has them. Raises ApiError, UserError."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups]
    try:
        subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in (*names, (NameOID.COMMON_NAME, user))])
    except ValueError as error:
        raise UserError(f"no certificate can name this user and its groups: {error}", hint="shorten them") from None
    content = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = await client.create(
        CERTIFICATE_SIGNING_REQUESTS,
        {
            "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
            "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
            "metadata": {"generateName": "kubeloop-kubeconfig-"},
            "spec": {
                "request": _base64(content.public_bytes(Encoding.PEM)),
                "signerName": _SIGNER,
                "expirationSeconds": seconds,
                "usages": ["client auth"],
            },
        },
    )
    name = request["metadata"]["name"]
    try:
        approval = {"type": "Approved", "status": "True", "reason": "Kubeconfig", "message": "kubeloop kubeconfig"}
        approved = {**request, "status": {"conditions": [approval]}}
        await client.update(CERTIFICATE_SIGNING_REQUESTS, name, approved, subresource="approval")
        certificate = await _issued_certificate(client, name)
    finally:
        await client.delete(CERTIFICATE_SIGNING_REQUESTS, name)
    return {"client-certificate-data": certificate, "client-key-data": _base64(private_key_pem(key))}


async def _issued_certificate(client: ApiClient, name: str) -> str:
    """Wait for the certificate of a request; return it in base64. Raises UserError after ten seconds."""
    try:
        async with asyncio.timeout(_SIGN_SECONDS):
            while True:
                request = await client.get(CERTIFICATE_SIGNING_REQUESTS, name)
                if certificate := (request.get("status") or {}).get("certificate"):
                    return str(certificate)
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise UserError(
            "no controller signs certificate requests in this cluster",
            hint="kubeloop up does; beside kubeloop apiserver, start kubeloop run --controllers=csrsigning",
        ) from None


def _base64(content: bytes) -> str:
    return b64encode(content).decode()
