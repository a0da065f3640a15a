import pytest
import torch

from trainer.errors import UserError
from trainer.model.precision import choose

CPU = torch.device("cpu")


def test_fp16_needs_a_gpu() -> None:
    with pytest.raises(UserError, match="--precision") as caught:
        choose("fp16", CPU, "small-cnn")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("model", "instructions", "name"),
    [("fast-cnn", True, "bf16"), ("fast-cnn", False, "fp32"), ("tutorial-cnn", True, "fp32")],
)
def test_a_cpu_computes_in_bf16_where_it_is_known_to_pay(
    monkeypatch: pytest.MonkeyPatch, model: str, instructions: bool, name: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: instructions)
    assert choose("auto", CPU, model).name == name
    assert choose("fp32", CPU, model).name == "fp32"
