from kubeloop.kube.client.transport import join_headers


def test_values_of_repeated_headers_are_joined() -> None:
    assert join_headers([("Warning", "a"), ("X", "1"), ("warning", "b")]) == {"warning": "a, b", "x": "1"}
