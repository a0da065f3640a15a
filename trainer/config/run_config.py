"""The request for a run. Free of torch, so that the launcher can check it before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from trainer.config import flags as flag_values
from trainer.config.sections import (
    AugmentationConfig,
    BatchConfig,
    CheckpointConfig,
    ComputeConfig,
    DataConfig,
    DistributedConfig,
    EvaluationConfig,
    LossConfig,
    OptimizationConfig,
    OutputConfig,
    TrainingConfig,
)
from trainer.errors import UserError

Section = TypeVar("Section")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked request, in sections. The whole is for what wires a run; other modules take the sections they need."""

    recipe: str | None
    """The tuned set that flags not given were taken from; None = the parser's own defaults."""
    model: str
    seed: int
    data: DataConfig
    augmentation: AugmentationConfig
    loss: LossConfig
    batch: BatchConfig
    optimization: OptimizationConfig
    training: TrainingConfig
    compute: ComputeConfig
    evaluation: EvaluationConfig
    checkpoints: CheckpointConfig
    distributed: DistributedConfig
    output: OutputConfig


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Config:
    """Check flags and the launcher's variables.

    Raises:
        UserError: exit code 2; the message names the flag, its value and what is allowed.
    """
    values = flag_values.values(argv)
    values["must_resume"] = _must_resume(values["resume"], env)
    backend, planned_gpus = _planned_backend(env), _planned_gpus(env)
    if values["strategy"] == "dp" and values["compile"] in ("on", "graphs"):
        raise UserError("argument --compile: --strategy dp can't be compiled; use --strategy ddp", exit_code=2)
    values["planned_gpus"] = 0 if values["backend"] == "gloo" else planned_gpus
    values["backend"] = backend if values["backend"] == "auto" else values["backend"]
    values["own_copy"] = values["data"] or _from_env(env, "RINGMASTER_DATA")
    _check_folder(values)
    values["data_dir"] = values["data_dir"] or _from_env(env, "DATA_DIR") or Path("data")
    values["run_dir"] = values["run_dir"] or _from_env(env, "RUN_DIR")
    values["checkpoint_dir"] = _from_env(env, "CHECKPOINT_DIR")
    values["job"] = env.get("RINGMASTER_JOB") or None
    return Config(
        recipe=values["recipe"],
        model=values["model"],
        seed=values["seed"],
        data=_section(DataConfig, values),
        augmentation=_section(AugmentationConfig, values),
        loss=_section(LossConfig, values),
        batch=_section(BatchConfig, values),
        optimization=_section(OptimizationConfig, values),
        training=_section(TrainingConfig, values),
        compute=_section(ComputeConfig, values),
        evaluation=_section(EvaluationConfig, values),
        checkpoints=_section(CheckpointConfig, values),
        distributed=_section(DistributedConfig, values),
        output=_section(OutputConfig, values),
    )


def _section(section: type[Section], values: Mapping[str, Any]) -> Section:
    return section(**{field.name: values[field.name] for field in fields(section)})  # type: ignore[arg-type]


def _from_env(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _must_resume(resume: str, env: Mapping[str, str]) -> bool:
    if resume not in ("auto", "none") and not flag_values.exists(resume):
        raise UserError(f"argument --resume: {resume!r} is neither auto, none nor a path here", exit_code=2)
    must_resume = env.get("RINGMASTER_RESUME") == "1"
    if must_resume and resume == "none":
        raise UserError("argument --resume: none contradicts RESUME; leave one of them out", exit_code=2)
    return must_resume


def _planned_backend(env: Mapping[str, str]) -> str:
    backend = env.get("RINGMASTER_BACKEND") or "auto"
    if backend not in ("auto", "nccl", "gloo"):
        raise UserError(f"RINGMASTER_BACKEND: {backend!r} is not one of auto, nccl, gloo", exit_code=2)
    return backend


def _planned_gpus(env: Mapping[str, str]) -> int:
    gpus = env.get("RINGMASTER_GPUS") or "0"
    if not (gpus.isascii() and gpus.isdigit()):
        raise UserError(f"RINGMASTER_GPUS: {gpus!r} is not a number of GPUs", exit_code=2)
    return int(gpus)


def _check_folder(values: Mapping[str, Any]) -> None:
    if values["dataset"] != "folder":
        return
    if values["own_copy"] is None:
        raise UserError(
            "argument --dataset: folder needs your images: --data PATH (with make: DATA=PATH), with "
            "train/<class>/*.jpg and val/<class>/*.jpg in it",
            exit_code=2,
        )
    if values["shift"]:
        source = f", which recipe {values['recipe']} asks for" if values["recipe"] else ""
        raise UserError(
            f"argument --shift{source}: a folder's images are cropped at random already (--crop); use --shift 0",
            exit_code=2,
        )


def strategy(argv: Sequence[str]) -> str:
    """Return the strategy that these arguments choose; empty if they only ask for help.

    Raises:
        UserError: exit code 2; the message names the flag, its value and what is allowed.
    """
    return "" if {"-h", "--help"} & set(argv) else str(flag_values.values(argv)["strategy"])


def usage() -> str:
    """Return the help text of all flags."""
    return flag_values.parser().format_help()


def validate_world(config: Config, *, nodes: int, world_size: int) -> None:
    """Refuse a world that the strategy can't use.

    Raises:
        UserError: exit code 2.
    """
    strategy = config.distributed.strategy
    if strategy == "ddp" or (nodes == 1 and world_size == 1):
        return
    how = "in one process, on all GPUs of one node" if strategy == "dp" else "in one process"
    raise UserError(
        f"argument --strategy: {strategy} trains {how}, not in {world_size} on {nodes} node(s); "
        "use --strategy ddp, or NODES=1 (without make: --nnodes=1 --nproc-per-node=1)",
        exit_code=2,
    )
