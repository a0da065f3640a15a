"""The inventory's `ringmaster_…` variables: known names, and values of the right form."""

import pytest

from launcher.inventory.settings import settings_problem


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"runtime": "process", "gpus": 2, "ranks_per_node": "3", "backend": "gloo"},
        {"comm_env": {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_NTHREADS": 4}, "interface": "eth0", "cluster_ip": "10.0.0.1"},
    ],
)
def test_good_settings(settings: dict[str, object]) -> None:
    assert settings_problem(settings) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"ranks_per_node": value}, "ringmaster_ranks_per_node") for value in (0, -1, "two", 1.5, "", True, None)),
        ({"gpus": "two"}, "must be a whole number from 0 up"),
        ({"backend": "mpi"}, "auto, nccl or gloo"),
        ({"runtime": "podman"}, "docker or process"),
        ({"comm_env": "NCCL_DEBUG=INFO"}, "a mapping"),
        ({"comm_env": {"A=B": 1}}, "a mapping"),
        ({"comm_env": {"GLOO_IFACE": "eth0"}}, "nothing reads GLOO_IFACE: did you mean GLOO_SOCKET_IFNAME?"),
        ({"comm_env": {"NCCL_DEBUG": "INFO", "RUN_DIR": "/x"}}, "RUN_DIR is set for each job"),
        ({"data_dir": "here"}, "an absolute path"),
        ({"gpu": 2}, "did you mean ringmaster_gpus?"),
        ({"qqq": 2}, "known: runtime"),
    ],
)
def test_bad_settings_are_said_in_a_sentence(settings: dict[str, object], message: str) -> None:
    assert message in str(settings_problem(settings))
