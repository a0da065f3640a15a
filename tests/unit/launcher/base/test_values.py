"""Values of options as users type them."""

import pytest

from launcher.base.errors import RingmasterError
from launcher.base.values import size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("0", 0),
        ("50G", 50 * 10**9),
        ("1.5g", 1_500_000_000),
        ("20kB", 20_000),
        ("7", 7),
        ("2T", 2 * 10**12),
    ],
)
def test_a_size(text: str, value: int | None) -> None:
    assert size("WORK_LIMIT", text) == value


@pytest.mark.parametrize("text", ["-1", "50 G", "G", "1e9", "50GiB", "inf", "0x10", "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(RingmasterError, match=r"^WORK_LIMIT=.*: must be a size such as 50G"):
        size("WORK_LIMIT", text)
