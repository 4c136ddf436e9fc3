"""Claims that a Pod uses."""

from kubeloop.controllers.runtime.pods.volume_claims import by_claim, claims_of_pod
from kubeloop.kube.objects.api_types import Pod, convert


def test_claims_of_pod_are_named_and_ephemeral_ones():
    source = {"volumeClaimTemplate": {"spec": {}}}
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": source},
        {"name": "c", "emptyDir": {}},
    ]
    pod = convert(Pod, {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"volumes": volumes}})
    assert list(claims_of_pod(pod)) == [("ns/data", None), ("ns/web-b", source)]
    assert by_claim(pod) == ["ns/data", "ns/web-b"]
    assert not by_claim(Pod())
