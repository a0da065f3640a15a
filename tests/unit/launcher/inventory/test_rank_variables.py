"""Variables for ranks: names that somebody reads, and interfaces that a node has."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from launcher.inventory.rank_variables import interface_problems, is_secret, name_problem, nccl_finds_interface

HERE = ("lo", "eth0", "eth10", "docker0")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GLOO_IFACE", "GLOO_SOCKET_IFNAME"),
        ("GLOO_LOGLEVEL", "GLOO_LOG_LEVEL"),
        ("NCCL_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_INTERFACE", "NCCL_SOCKET_IFNAME"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("OMP_NUM_THREAD", "OMP_NUM_THREADS"),
    ],
)
def test_a_name_that_nobody_reads(name: str, meant: str) -> None:
    assert name_problem(name) == f"nothing reads {name}: did you mean {meant}?"


@pytest.mark.parametrize(
    "name", ["NCCL_SOMETHING_NEW", "MY_DEBUG", "LD_PRELOAD", "FI_PROVIDER", "UCX_TLS", "PYTHONPATH"]
)
def test_other_names_are_the_users_own_matter(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
        *(
            "MASTER_ADDR",
            "MASTER_PORT",
            "RUN_DIR",
            "DATA_DIR",
            "CHECKPOINT_DIR",
            "TORCHELASTIC_RUN_ID",
            "RINGMASTER_JOB",
        ),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HOME"),
    ],
)
def test_what_ringmaster_and_torchrun_set(name: str) -> None:
    assert f"{name} is set for each job" in name_problem(name)


SECRET = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "AWS_SESSION_TOKEN", "NEPTUNE_API_TOKEN", "TOKEN"),
    *("HFTOKEN", "GITLABTOKEN", "SSHKEY", "WANDBKEY", "DB_PASS_1"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY", "OPENAI_API_KEY", "OPENAI_API_KEYS"),
    *("KAGGLE_KEY", "SSH_PRIVATE_KEY", "COMET_API_KEY", "APIKEY", "API_KEY_2", "KEY1", "api_key", "myApiKey"),
    *("CLIENT_SECRET", "SECRET", "SECRETKEY", "MySecretThing", "CLEARML_API_SECRET_KEY", "DJANGO_SECRETS"),
    *("DB_PASSWORD", "DB_PASSWD", "DB_PASS", "SMTP_PASS", "MYSQL_PWD", "PGPASSWORD", "MLFLOW_TRACKING_PASSWORD"),
    *("SSH_PASSPHRASE", "REDISCLI_AUTH_TOKEN", "PASSWORD", "PASS"),
)
PLAIN = (
    *("KEYPOINTS", "KEYFRAMES", "NUM_KEYPOINTS", "KEYWORDS", "KEYBOARD_LAYOUT", "HOTKEYS_ON"),
    *("TOKENIZERS_PARALLELISM", "TOKENIZER", "MAX_TOKENS", "TOKENS_PER_STEP", "TIKTOKEN_CACHE_DIR"),
    *("PASSES", "PASS_RATE", "SINGLE_PASS_MODE", "BYPASS", "COMPASS_HEADING", "PWD", "OLDPWD", "SECRETARY"),
    *("GIT_ASKPASS", "OMP_NUM_THREADS", "NCCL_ALGO", "PYTORCH_CUDA_ALLOC_CONF", "WANDB_PROJECT", "HF_HOME"),
)


def test_which_names_hold_secrets() -> None:
    assert [name for name in SECRET if not is_secret(name)] == []
    assert [name for name in PLAIN if is_secret(name)] == []


@pytest.mark.parametrize(
    "library", ["torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so", "nvidia/nccl/lib/libnccl.so.2"]
)
def test_no_name_that_torch_and_nccl_read_is_refused(library: str) -> None:
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    path = Path(torch.origin).parents[1] / library
    if not path.exists():
        pytest.skip(f"this torch comes without {library}")
    found = {
        name.decode() for name in re.findall(rb"\0((?:GLOO|NCCL|TORCH_NCCL|TP)_[A-Z0-9_]+)(?=\0)", path.read_bytes())
    }
    assert found
    assert {name: name_problem(name) for name in found if name_problem(name)} == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth10"),
        ("GLOO_SOCKET_IFNAME", ""),
        ("TP_SOCKET_IFNAME", "lo"),
        ("NCCL_SOCKET_IFNAME", "eth"),
        ("NCCL_SOCKET_IFNAME", "ib,eth1"),
        ("NCCL_SOCKET_IFNAME", "=eth10"),
        ("NCCL_SOCKET_IFNAME", "=eth9,eth0"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ("NCCL_SOCKET_IFNAME", "^=eth1"),
        ("NCCL_IB_HCA", "mlx5_9"),
    ],
)
def test_interfaces_that_are_there(name: str, value: str) -> None:
    assert interface_problems({"ENV": {name: value}}, HERE) == []


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("GLOO_SOCKET_IFNAME", "eth", "eth"),
        ("GLOO_SOCKET_IFNAME", "=eth0", "=eth0"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth9", "eth9"),
        ("GLOO_SOCKET_IFNAME", "^lo", "^lo"),
        ("NCCL_SOCKET_IFNAME", "ib", "ib"),
        ("NCCL_SOCKET_IFNAME", "=eth1", "=eth1"),
        ("NCCL_SOCKET_IFNAME", "^lo,eth,docker", "^lo,eth,docker"),
        ("NCCL_OOB_NET_IFNAME", "=eth", "=eth"),
    ],
)
def test_interfaces_that_are_not_there(name: str, value: str, missing: str) -> None:
    (only,) = interface_problems({"ENV": {name: value}}, HERE)
    assert only.startswith(
        f"{name}={value} (from ENV): no interface here fits {missing}, there is lo, eth0, eth10, docker0:"
    )


@pytest.mark.parametrize(
    ("settings", "gpus", "finds"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"backend": "gloo"}, True, False),
        ({"backend": "auto", "comm_env": None}, True, True),
        ({"comm_env": {"NCCL_SOCKET_IFNAME": "=eth1"}}, True, False),
        ({"comm_env": {"GLOO_SOCKET_IFNAME": "eth1"}}, True, True),
    ],
)
def test_where_nccl_finds_its_interface_itself(settings: dict[str, Any], gpus: bool, finds: bool) -> None:
    assert nccl_finds_interface(settings, gpus=gpus) == finds


def test_of_two_who_set_a_variable_the_later_counts() -> None:
    assert (
        interface_problems({"site": {"GLOO_SOCKET_IFNAME": "eth9"}, "ENV": {"GLOO_SOCKET_IFNAME": "eth0"}}, HERE) == []
    )
