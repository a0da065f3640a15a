"""Each measured choice differs from the default in one thing."""

from dataclasses import asdict

import pytest

from benchmarks import step_choices
from benchmarks.step_choices import DEFAULT, undone


@pytest.mark.parametrize(("precision", "other"), [("bf16", "fp32"), ("fp16", "fp32"), ("fp32", "bf16")])
def test_the_other_number_format_is_the_one_that_is_not_used(precision: str, other: str) -> None:
    assert undone(precision)[f"{other} in place of {precision}"].flags == ("--precision", other)


def test_every_way_differs_from_the_default_in_one_thing() -> None:
    ways = undone("bf16")
    assert len(ways) >= 4
    for setting in ways.values():
        assert sum(asdict(setting)[name] != value for name, value in asdict(DEFAULT).items()) == 1


def test_compiling_is_tried_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    for found in ((), ("0",)):
        monkeypatch.setattr(step_choices, "gpus", lambda _variables, found=found: found)
        compiled.append([label for label, setting in undone("bf16").items() if setting.compiled])
    assert compiled == [[], ["torch.compile"]]
