"""How much room an image takes while it arrives: only its missing layers count."""

from typing import Any

from ansible.module_utils.ringmaster.image.space import bytes_missing, layers_of, room_needed
from hypothesis import given
from hypothesis import strategies as st

layers = st.lists(
    st.builds(lambda name, size: {"layer": f"sha256:{name}", "bytes": size}, st.uuids(), st.integers(0, 10**9)),
    max_size=8,
)


@given(parts=layers, size=st.integers(0, 10**11), shared=st.integers(0, 8))
def test_the_more_is_here_the_less_is_needed(parts: list[dict[str, Any]], size: int, shared: int) -> None:
    chain = [one["layer"] for one in parts]
    nothing, some = room_needed(parts, size, []), room_needed(parts, size, [["other"], chain[:shared]])
    assert 0 <= some <= nothing
    assert room_needed(parts, size, [chain]) == 0


def test_a_whole_image_takes_its_size_twice_its_compressed_one_and_a_little() -> None:
    parts = [{"layer": "a", "bytes": 300}, {"layer": "b", "bytes": 100}]
    assert room_needed(parts, 1000, []) == 1980


def test_a_layer_above_another_one_than_here_is_fetched_again() -> None:
    parts = [{"layer": "a", "bytes": 300}, {"layer": "b", "bytes": 100}]
    assert room_needed(parts, 1000, [["x", "b"]]) == room_needed(parts, 1000, [])
    assert bytes_missing(parts, [["x", "b"]]) == 400
    assert bytes_missing(parts, [["a", "x"], ["y"]]) == 100


def test_layers_come_from_the_manifest() -> None:
    manifest = {"layers": [{"size": 3, "digest": "compressed"}]}
    assert layers_of(manifest, ["sha256:a"]) == [{"layer": "sha256:a", "bytes": 3}]


def test_a_manifest_of_several_platforms_says_nothing_of_layers() -> None:
    assert layers_of({"manifests": []}, ["sha256:a"]) == []
    assert room_needed([], 1000, []) == 0
