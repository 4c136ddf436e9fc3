"""Messages between the test process and its host process."""

import stat
from pathlib import Path

import msgspec

from kubeloop.testing.host.messages import ClusterAddress, Done, Ended, Failed, Response


def address(directory: Path) -> ClusterAddress:
    return ClusterAddress(
        cluster=1,
        pid=2,
        server="https://127.0.0.1:1",
        plain_server="http://127.0.0.1:2",
        token="secret",
        endpoint="http://127.0.0.1:3",
        directory=str(directory),
    )


def test_responses_are_told_apart_after_decoding(tmp_path):
    for response in (Done(1, address(tmp_path)), Failed(2, "no", "try"), Ended(3, "crashed")):
        assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response


def test_kubeconfig_of_a_namespace_is_private_and_complete(tmp_path):
    (tmp_path / "ca.pem").write_text("certificate")
    cluster = address(tmp_path)

    cluster.write_kubeconfig_of("shop")

    path = cluster.kubeconfig_of("shop")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = msgspec.json.decode(path.read_bytes())
    assert document["contexts"][0]["context"]["namespace"] == "shop"
    assert document["clusters"][0]["cluster"]["server"] == cluster.server
    assert document["users"][0]["user"]["token"] == cluster.token
    assert [file.name for file in tmp_path.glob("*.partial")] == []
