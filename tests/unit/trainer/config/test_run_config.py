import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import flags as flag_values
from trainer.config.run_config import Config, parse, strategy, validate_world
from trainer.errors import UserError

NUMBERS = ["--epochs", "--batch-size", "--lr", "--momentum", "--weight-decay", "--warmup", "--clip-norm", "--seed"]
NUMBERS += [
    "--accumulate",
    "--eval-steps",
    "--max-val-items",
    "--max-steps",
    "--checkpoint-seconds",
    "--keep",
    "--timeout",
]


def test_is_free_of_torch() -> None:
    modules = "trainer.config.run_config, trainer.config.scaling, trainer.checkpoint.files, trainer.reporting.metrics"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_flag_is_in_one_section_under_its_own_name() -> None:
    sections = [field.type for field in fields(Config) if is_dataclass(field.type)]
    names = [field.name for section in sections for field in fields(section)]
    assert len(names) == len(set(names))
    flags = set(flag_values.values([])) - {"data", "debug"}  # data: `own_copy`; debug: read before anything is parsed
    assert flags <= {*names, "recipe", "model", "seed"}


def test_defaults_come_from_the_launcher() -> None:
    env = {
        "RUN_DIR": "/r",
        "DATA_DIR": "/d",
        "CHECKPOINT_DIR": "/c",
        "RINGMASTER_DATA": "/own",
        "RINGMASTER_BACKEND": "gloo",
        "RINGMASTER_GPUS": "2",
        "RINGMASTER_JOB": "night",
    }
    config = parse([], env)
    assert (config.output.run_dir, config.data.data_dir, config.output.checkpoint_dir) == (
        Path("/r"),
        Path("/d"),
        Path("/c"),
    )
    assert (config.data.own_copy, config.output.job) == (Path("/own"), "night")
    assert (config.distributed.backend, config.distributed.planned_gpus) == ("gloo", 2)


def test_flags_win_over_the_launcher() -> None:
    flags = ["--run-dir", "a", "--data-dir", "b", "--data", "c", "--backend", "nccl"]
    env = {"RUN_DIR": "/r", "DATA_DIR": "/d", "RINGMASTER_DATA": "/own", "RINGMASTER_BACKEND": "gloo"}
    config = parse(flags, env)
    assert (config.output.run_dir, config.data.data_dir, config.data.own_copy) == (Path("a"), Path("b"), Path("c"))
    assert config.distributed.backend == "nccl"


@pytest.mark.parametrize("flag", NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "abc", "", "9" * 400])
def test_bad_numbers_name_flag_value_and_what_is_allowed(flag: str, value: str) -> None:
    with pytest.raises(UserError) as caught:
        parse([f"{flag}={value}"], {})
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert flag in message and repr(value) in message and "is not a" in message and "\n" not in message


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "gpt"],
        ["--nonsense"],
        ["--epoch", "3"],
        ["--resume", "/no/such"],
        ["--resume", "x" * 5000],
        ["--data", "a\0b"],
        ["--lr"],
    ],
)
def test_bad_words_are_refused(flags: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        parse(flags, {})
    assert caught.value.exit_code == 2 and flags[0] in str(caught.value)


@pytest.mark.parametrize("env", [{"RINGMASTER_BACKEND": "mpi"}, {"RINGMASTER_GPUS": "-1"}, {"RINGMASTER_GPUS": "two"}])
def test_a_bad_environment_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(UserError, match=next(iter(env))):
        parse([], env)


@given(st.lists(st.text() | st.sampled_from([*NUMBERS, "--model", "--data", "3", "0.5", "auto"]), max_size=6))
def test_any_arguments_give_a_config_or_one_line(argv: list[str]) -> None:
    try:
        assert isinstance(parse(argv, {}), Config)
    except UserError as error:
        assert error.exit_code == 2 and "\n" not in str(error)
    except SystemExit as asked_for_help:
        assert asked_for_help.code == 0 and any(word.startswith("-") and "h" in word for word in argv)


@pytest.mark.parametrize(
    ("strategy", "ranks", "fine"),
    [("none", 1, True), ("none", 2, False), ("dp", 1, True), ("dp", 2, False), ("ddp", 8, True)],
)
def test_strategy_and_ranks(strategy: str, ranks: int, fine: bool) -> None:
    config = parse(["--strategy", strategy], {})
    if fine:
        validate_world(config, nodes=1, world_size=ranks)
    else:
        with pytest.raises(UserError, match="--strategy") as caught:
            validate_world(config, nodes=2, world_size=ranks)
        assert caught.value.exit_code == 2


def test_models_of_torchvision_go_by_name_and_a_typo_gets_suggestions() -> None:
    assert parse(["--model", "resnet50"], {}).model == "resnet50"
    with pytest.raises(UserError, match="resnet50"):
        parse(["--model", "resnet5O"], {})


@pytest.mark.parametrize(
    ("flags", "meant"), [([], "auto"), (["--compile"], "on"), (["--compile", "graphs", "--seed", "1"], "graphs")]
)
def test_compile_may_stand_alone(flags: list[str], meant: str) -> None:
    assert parse(flags, {}).compute.compile == meant


@pytest.mark.parametrize("how", ["on", "graphs"])
def test_data_parallel_can_not_be_compiled(how: str) -> None:
    with pytest.raises(UserError, match="--compile: --strategy dp"):
        parse(["--strategy", "dp", "--compile", how], {})


def test_the_strategy_alone_is_read_from_any_arguments() -> None:
    words = (["--strategy", "dp"], [], ["--strategy", "dp", "--help"])
    assert [strategy(each) for each in words] == ["dp", "ddp", ""]
    with pytest.raises(UserError, match="--no-such"):
        strategy(["--strategy", "dp", "--no-such"])
