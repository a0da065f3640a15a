"""Channels to a node's engine: kept for the next request, but not for as long as the engine forgets them."""

import time
from socket import socketpair
from typing import Any

import pytest
import requests.adapters
from paramiko import Transport

from launcher.ssh import docker_transport


def test_a_channel_that_the_engine_has_closed_meanwhile_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that takes longer than five minutes to build failed once it was built."""
    closed: list[str] = []

    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", lambda self, *_: "answer")
    adapter: Any = docker_transport._OverTransport(Transport(socketpair()[0]), 60)
    first = adapter.get_connection("url")
    monkeypatch.setattr(first, "close", lambda: closed.append("first"))
    clock[0] += 10
    assert adapter.send("request") == "answer" and closed == []
    clock[0] += 59
    assert adapter.send("request") == "answer" and closed == [], "idle since the last request, not since the first"
    clock[0] += 61
    assert adapter.send("request") == "answer" and closed == ["first"]
    assert adapter.get_connection("url") is not first
