"""A relay of the image on a port of this machine, and the way to ask it."""

import contextlib
import hashlib
import http.client
import threading
from collections.abc import Iterator
from typing import Any

from ansible.module_utils.ringmaster.image.relay import Server, Store

CONTENT = bytes(range(256)) * 8
DIGEST = hashlib.sha256(CONTENT).hexdigest()
NAME = "/v2/ringmaster/train"


@contextlib.contextmanager
def running(store: Store) -> Iterator[Server]:
    with Server(store, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:  # otherwise a test that fails would never end
            server.shutdown()
            thread.join()


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers, encode_chunked=headers.get("Transfer-Encoding") == "chunked")
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
