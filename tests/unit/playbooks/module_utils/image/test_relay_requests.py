"""What engines ask of the image's relay, and what nobody should: pushes, pulls, and requests that make no sense."""

import contextlib
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.ringmaster.image import relay
from ansible.module_utils.ringmaster.image.relay import Chain, Server, Store

from tests.support.image_relay import CONTENT, DIGEST, NAME, ask, running


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    """The first of a chain."""
    with running(Store(str(tmp_path), None)) as server:
        yield server


def test_an_engine_pushes_as_dockers_and_as_containerds_does(served: Server) -> None:
    blob = f"{NAME}/blobs/sha256:{DIGEST}"
    assert ask(served, "HEAD", blob)[0] == 404
    status, headers, _ = ask(served, "POST", f"{NAME}/blobs/uploads/?mount=sha256:x&from=y")
    assert (status, headers["Range"]) == (202, "0-0")
    pieces = [CONTENT[:100], CONTENT[100:]]
    status, headers, _ = ask(served, "PATCH", headers["Location"], iter(pieces), **{"Transfer-Encoding": "chunked"})
    assert (status, headers["Range"]) == (202, f"0-{len(CONTENT) - 1}")
    assert ask(served, "PUT", f"{headers['Location']}?digest=sha256%3A{DIGEST}")[0] == 201
    assert ask(served, "HEAD", blob)[1]["Content-Length"] == str(len(CONTENT))
    assert ask(served, "GET", blob)[2] == CONTENT
    status, headers, body = ask(served, "GET", blob, Range="bytes=5-")
    assert (status, body, headers["Content-Range"]) == (206, CONTENT[5:], f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}")

    other = b"config"
    _, headers, _ = ask(served, "POST", f"{NAME}/blobs/uploads/")
    whole = f"{headers['Location']}?digest=sha256:{hashlib.sha256(other).hexdigest()}"
    assert ask(served, "PUT", whole, other)[0] == 201

    manifest = json.dumps({"config": {"mediaType": "application/vnd.oci.image.config.v1+json"}, "layers": []}).encode()
    status, headers, _ = ask(served, "PUT", f"{NAME}/manifests/0123abcd", manifest)
    assert status == 201
    status, headers, body = ask(served, "GET", f"{NAME}/manifests/{headers['Docker-Content-Digest']}")
    assert (status, body) == (200, manifest)
    assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"


def test_a_push_with_other_bytes_than_it_says_is_refused(served: Server) -> None:
    _, headers, _ = ask(served, "POST", f"{NAME}/blobs/uploads/")
    assert ask(served, "PUT", f"{headers['Location']}?digest=sha256:{DIGEST}", b"other")[0] == 400
    assert ask(served, "HEAD", f"{NAME}/blobs/sha256:{DIGEST}")[0] == 404


@pytest.mark.parametrize("length", ["-5", "+5", "1e3", "99999999999999", "five"])
def test_a_length_that_is_none_is_refused(served: Server, tmp_path: Path, length: str) -> None:
    for method, path in (("PUT", f"{NAME}/manifests/x"), ("PATCH", begun_upload(served))):
        with socket.create_connection(("127.0.0.1", served.server_address[1]), timeout=10) as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
            assert b" 400 " in connection.makefile("rb").readline()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", ["-5", "x", "", "fffffffffffff"])
def test_a_length_of_a_chunk_that_is_none_is_refused(served: Server, length: str) -> None:
    head = f"PATCH {begun_upload(served)} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length}\r\n"
    with socket.create_connection(("127.0.0.1", served.server_address[1]), timeout=10) as connection:
        connection.sendall(head.encode())
        assert b" 400 " in connection.makefile("rb").readline()


def begun_upload(server: Server) -> str:
    return ask(server, "POST", f"{NAME}/blobs/uploads/")[1]["Location"]


@pytest.mark.parametrize("headers", [{}, {"Transfer-Encoding": "chunked"}])
def test_a_manifest_that_would_not_fit_into_memory_is_refused(
    served: Server, tmp_path: Path, headers: dict[str, str]
) -> None:
    content = [b" " * relay.MANIFEST_BYTES, b"{}"]
    body = iter(content) if headers else b"".join(content)
    with contextlib.suppress(ConnectionError):  # it may refuse before everything is sent
        assert ask(served, "PUT", f"{NAME}/manifests/x", body, **headers)[0] == 413
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b" " * (relay.MANIFEST_BYTES + 1) + b"{}", b"\x1f\x8b", b"[]", b'{"config": 1}', b""]
)
def test_what_is_no_manifest_is_not_sent_as_one(served: Server, tmp_path: Path, content: bytes) -> None:
    name = hashlib.sha256(content).hexdigest()
    (tmp_path / name).write_bytes(content)
    assert ask(served, "GET", f"{NAME}/manifests/sha256:{name}")[0] == 404
    assert ask(served, "GET", f"{NAME}/blobs/sha256:{name}")[2] == content


def test_an_upload_has_one_writer(served: Server) -> None:
    place = begun_upload(served)
    with served.store.only_writer(place.rpartition("/")[2]):
        assert relay.state(served.server_address[1])["sending"] == 1  # the node is not free
        assert ask(served, "PATCH", place, b"other")[0] == 409
        assert ask(served, "PUT", f"{place}?digest=sha256:{DIGEST}", b"other")[0] == 409
    assert ask(served, "PUT", f"{place}?digest=sha256:{DIGEST}", CONTENT)[0] == 201


def test_an_upload_is_free_before_its_writer_is_answered(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine ends an upload over another connection, as soon as it is told that the bytes are there."""
    writing = []
    answer = relay.Answers.send_response

    def seen(answers: relay.Answers, *words: Any) -> None:
        writing.append(served.store.state()["sending"])
        answer(answers, *words)

    place = begun_upload(served)
    monkeypatch.setattr(relay.Answers, "send_response", seen)
    assert ask(served, "PATCH", place, CONTENT)[0] == 202
    assert ask(served, "PUT", f"{place}?digest=sha256:{DIGEST}")[0] == 201
    assert writing == [0, 0]


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_full_disk_is_the_reason_of_a_push_that_fails(served: Server, tmp_path: Path, method: str) -> None:
    _, headers, _ = ask(served, "POST", f"{NAME}/blobs/uploads/")
    upload = next(tmp_path.iterdir())
    upload.unlink()
    upload.symlink_to("/dev/full")
    assert ask(served, method, f"{headers['Location']}?digest=sha256:{DIGEST}", CONTENT)[0] == 507
    assert relay.state(served.server_address[1])["problem"] == f"No space left on device in {tmp_path}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/", "/v2/a/blobs/sha256:..%2f..", "/v2/../../etc/passwd", f"{NAME}/tags/list"])
def test_nothing_else_is_answered(served: Server, path: str) -> None:
    assert ask(served, "GET", path)[0] == 404
    assert ask(served, "PATCH", path, b"x")[0] == 404
    assert ask(served, "POST", path, b"x")[0] == 405


def test_a_link_takes_no_pushes(tmp_path: Path) -> None:
    with running(Store(str(tmp_path), Chain([("node1", lambda *_: pytest.fail("it was asked"))]))) as server:
        assert ask(server, "POST", f"{NAME}/blobs/uploads/")[0] == 405
        assert ask(server, "PUT", f"{NAME}/manifests/x", b"{}")[0] in (404, 405)
        assert list(tmp_path.iterdir()) == []
