import pytest
import torch

from trainer.errors import UserError
from trainer.precision import choose

CPU = torch.device("cpu")


def test_fp16_needs_a_gpu() -> None:
    with pytest.raises(UserError, match="--precision") as caught:
        choose("fp16", CPU)
    assert caught.value.exit_code == 2
    assert choose("auto", CPU).name == "fp32"
