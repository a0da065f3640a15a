"""Facts about this machine."""

import os
import socket
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job import rendezvous
from launcher.local import machine


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((machine.LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not machine.port_is_free(machine.LOOPBACK, port)
        monkeypatch.setattr(rendezvous, "PORTS", range(port, port + 2))
        monkeypatch.setattr(rendezvous.random, "randrange", lambda _: 0)
        assert machine.free_port(machine.LOOPBACK) == port + 1


def test_a_listener_on_all_addresses_counts_too() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        assert not machine.port_is_free(machine.LOOPBACK, taken.getsockname()[1])


def test_which_addresses_are_this_machines() -> None:
    assert machine.is_this_machine("127.0.0.1")
    assert machine.is_this_machine("localhost")
    assert not machine.is_this_machine("203.0.113.1")
    assert not machine.is_this_machine("no.such.name.invalid")


@pytest.mark.parametrize(("chosen", "expected"), [("", ()), ("-1", ()), ("0, 2", ("0", "2")), ("GPU-ab", ("GPU-ab",))])
def test_gpus_chosen_by_the_environment(chosen: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert machine.gpus({"CUDA_VISIBLE_DEVICES": chosen}, tmp_path) == expected


@pytest.mark.parametrize(("chosen", "vain"), [("0", True), ("GPU-ab,1", True), ("", False), ("-1", False)])
def test_gpus_chosen_where_there_are_none(chosen: str, vain: bool, tmp_path: Path) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": chosen}
    assert machine.gpus(variables, tmp_path) == ()
    assert machine.chosen_in_vain(variables, tmp_path) == vain
    for device in ("nvidia0", "kfd", "dxg"):  # a driver is there: what fails then is not passed over
        (tmp_path / device).touch()
        assert not machine.chosen_in_vain(variables, tmp_path)
        (tmp_path / device).unlink()


def test_gpus_from_the_drivers_tool_and_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus({}) == ()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '%s, GPU-a, T4, 15360, 4, 580.95.05, 7.5\\n' 0 1\n")
    tool.chmod(0o755)
    assert machine.gpus({}) == ("0", "1")
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert machine.gpus({}) == ()


def test_a_lost_gpu_is_no_reason_to_train_on_the_cpu_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tool = tmp_path / "nvidia-smi"
    good, lost = "0, GPU-a, T4, 15360, 4, 580.95.05, 7.5", "[Unknown Error], [GPU is lost], T4, , , ,"
    tool.write_text(f"#!/bin/sh\necho '{good}'\necho '{lost}'\n")
    tool.chmod(0o755)
    with pytest.raises(RingmasterError, match=r"a GPU that can't be used .*GPU is lost") as raised:
        machine.gpus({})
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_which_process_holds_a_connection() -> None:
    with socket.create_server((machine.LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert machine.holds_connection(os.getpid(), port)
    assert not machine.holds_connection(os.getpid(), port)
