"""The client of test clusters, on a connection that is reset before the handshake."""

from __future__ import annotations

import gc
import select
import socket
import struct
import warnings

import pytest

from tests.cluster.control.client_tls import client_context
from tests.cluster.control.credentials import Authority

pytestmark = pytest.mark.cluster


def test_no_socket_is_left_open_where_the_peer_dies_before_the_handshake(tmp_path):
    """As an API server that is killed: pytest would blame whichever test runs next."""
    authority = Authority("test")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    authority.client("admin", []).write(tmp_path, "admin")
    context = client_context(tmp_path, "admin")
    with socket.create_server(("127.0.0.1", 0)) as server:
        raw = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        assert select.select([raw], [], [], 10)[0]  # the reset has come
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with pytest.raises(ConnectionResetError) as raised:
                context.wrap_socket(raw, server_hostname="localhost")
            del raised
            gc.collect()
    assert [str(one.message) for one in seen] == []
