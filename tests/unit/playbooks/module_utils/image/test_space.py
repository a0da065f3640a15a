"""How much room an image takes while it arrives: only its missing layers count."""

from typing import Any

from ansible.module_utils.ringmaster.image.space import Place, bytes_missing, layers_of, room_needed, short_of_room
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
    assert all(0 <= one <= other for one, other in zip(some, nothing, strict=True))
    assert room_needed(parts, size, [chain]) == (0, 0)


def test_a_whole_image_takes_its_size_twice_its_compressed_one_and_a_little() -> None:
    parts = [{"layer": "a", "bytes": 300}, {"layer": "b", "bytes": 100}]
    assert room_needed(parts, 1000, []) == (440, 1540)


def test_a_layer_above_another_one_than_here_is_fetched_again() -> None:
    parts = [{"layer": "a", "bytes": 300}, {"layer": "b", "bytes": 100}]
    assert room_needed(parts, 1000, [["x", "b"]]) == room_needed(parts, 1000, [])
    assert bytes_missing(parts, [["x", "b"]]) == 400
    assert bytes_missing(parts, [["a", "x"], ["y"]]) == 100


def test_layers_come_from_the_manifest() -> None:
    manifest = {"layers": [{"size": 3, "digest": "sha256:c"}]}
    assert layers_of(manifest, ["sha256:a"]) == [{"layer": "sha256:a", "blob": "c", "bytes": 3}]


def test_a_manifest_of_several_platforms_says_nothing_of_layers() -> None:
    assert layers_of({"manifests": []}, ["sha256:a"]) == []
    assert room_needed([], 1000, []) == (0, 0)


GB = 10**9


def test_folders_of_one_file_system_share_its_room() -> None:
    both = [Place("/docker", 1, 10 * GB, 7 * GB), Place("/relay", 1, 10 * GB, 3 * GB)]
    assert short_of_room(both) == ""
    more = [both[0], Place("/relay", 1, 10 * GB, 4 * GB)]
    assert short_of_room(more) == "11.0 GB in /docker and /relay, 10.0 are free"


def test_each_file_system_needs_room_of_its_own() -> None:
    root, relay = Place("/docker", 1, 10 * GB, 7 * GB), Place("/relay", 2, 1 * GB, 3 * GB)
    assert short_of_room([root, relay]) == "3.0 GB in /relay, 1.0 are free"
    assert short_of_room([root, Place("/relay", 2, 4 * GB, 3 * GB)]) == ""
    assert short_of_room([root, Place("/relay", 2, 0, 0)]) == ""
