"""The listener of the endpoint."""

from __future__ import annotations

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.endpoint_listener import listener_url, open_listener


def test_listener_error_suggests_which_option_to_change():
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert listener_url(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(UserError, match=f"127.0.0.1 port {port}: Address already in use") as taken:
            open_listener("127.0.0.1", port).__enter__()
    assert "--endpoint-port" in taken.value.hint
    with pytest.raises(UserError, match=r"203\.0\.113\.1 port 0") as elsewhere:
        open_listener("203.0.113.1", 0).__enter__()
    with pytest.raises(UserError, match=r"cannot listen on a\.\.b port 0: not a name"):
        open_listener("a..b", 0).__enter__()
    assert "--bind-address" in elsewhere.value.hint
