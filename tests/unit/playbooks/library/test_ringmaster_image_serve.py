"""Handing the image on: what is said where no node has it."""

from typing import Any

import pytest
import ringmaster_image_serve
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.engine import Engine


def test_where_the_node_that_has_it_failed_the_others_say_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked in turn then, and the way out is that node's."""
    monkeypatch.setattr(ringmaster_image_serve, "find_image", lambda *_: None)
    parameters: dict[str, Any] = {"reference": "sha256:" + "a" * 64}
    with pytest.raises(ValueError, match=r"left in this run has the image .*: if one that has it failed, its line"):
        ringmaster_image_serve.obtain(Manifest(lock=False), Engine(), parameters)
