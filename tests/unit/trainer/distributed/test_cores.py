"""Cores that are really free, on made-up machines."""

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from trainer.distributed import cores
from trainer.distributed.cores import Facts, cpu_quota, facts, free_cores, gpu_cores, own_cores, parse_core_list, share

ONE = Facts(machine="m", cores=(0, 1, 2, 3), near=(0, 1, 2, 3), quota=None, quota_of="g")


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


class TestQuota:
    @pytest.mark.parametrize(
        ("files", "quota"),
        [
            ({}, None),
            ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
            ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, Fraction(3, 2)),
            (  # the tightest of the groups around it holds
                {
                    "proc/self/cgroup": "0::/a/b",
                    "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                    "sys/fs/cgroup/a/cpu.max": "200000 100000",
                    "sys/fs/cgroup/cpu.max": "300000 100000",
                },
                Fraction(2),
            ),
            (  # version 1 beside version 2
                {
                    "proc/self/cgroup": "3:cpu,cpuacct:/x\n0::/x",
                    "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "50000",
                    "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
                    "sys/fs/cgroup/unified/x/cpu.max": "max 100000",
                },
                Fraction(1, 2),
            ),
            (  # in a container: the host's path, of which only the top is there
                {
                    "proc/self/cgroup": "1:cpu:/docker/0123",
                    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000",
                    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                },
                Fraction(4),
            ),
            (
                {
                    "proc/self/cgroup": "1:cpu:/",
                    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                },
                None,
            ),
        ],
    )
    def test_it_is_found(self, files: dict[str, str], quota: Fraction | None, tmp_path: Path) -> None:
        assert cpu_quota(tree(tmp_path, files)) == quota

    @pytest.mark.parametrize(("text", "free"), [("50000 100000", 1), ("250000 100000", 2), ("max 100000", 8)])
    def test_whole_cores_are_free(self, text: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        root = tree(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": text})
        assert free_cores(root) == free


class TestFacts:
    def test_threads_of_a_physical_core_are_beside_each_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
        files = {"proc/sys/kernel/random/boot_id": "b"}
        for core, physical in enumerate((0, 1, 0, 1)):  # Intel counts all cores, then their second threads
            files[f"sys/devices/system/cpu/cpu{core}/topology/core_id"] = str(physical)
            files[f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id"] = "0"
        seen = facts(tree(tmp_path, files))
        assert (seen.machine, seen.cores, seen.near) == ("b", (0, 2, 1, 3), (0, 2, 1, 3))

    @pytest.mark.parametrize(("node", "near"), [("1", (4, 5)), ("-1", (2, 3, 4, 5)), ("7", (2, 3, 4, 5))])
    def test_cores_near_a_gpu(
        self, node: str, near: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 4, 5})
        files = {
            "sys/bus/pci/devices/0000:8a:00.0/numa_node": node,
            "sys/devices/system/node/node1/cpulist": "4-7",
        }
        assert facts(tree(tmp_path, files), gpu="0000:8A:00.0").near == near
        assert gpu_cores("0000:ff:00.0", tmp_path) == frozenset()

    def test_core_lists(self) -> None:
        assert parse_core_list("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
        assert parse_core_list("") == frozenset()


class TestShare:
    @pytest.mark.parametrize(
        ("ranks", "share_of_first"),
        [
            ([ONE], 4),
            ([ONE, ONE], 2),
            ([ONE, replace(ONE, machine="other")], 4),
            ([ONE] * 5, 1),
            ([replace(ONE, cores=(0, 1)), replace(ONE, cores=(2, 3))], 2),  # bound already
            ([ONE, replace(ONE, cores=(0, 1))], 3),  # two alone and two halves
            ([replace(ONE, quota=Fraction(2))] * 2, 1),
            ([replace(ONE, quota=Fraction(2)), replace(ONE, quota=Fraction(2), quota_of="h")], 2),
        ],
    )
    def test_cores_and_quotas_are_shared_out(self, ranks: list[Facts], share_of_first: int) -> None:
        assert share(ranks, 0) == share_of_first


class TestBinding:
    def test_ranks_part_the_cores_they_have_in_common(self) -> None:
        assert [own_cores([ONE, ONE], rank) for rank in (0, 1)] == [(0, 1), (2, 3)]
        thirds = [own_cores([ONE] * 3, rank) for rank in range(3)]
        assert sorted(core for part in thirds for core in part or ()) == [0, 1, 2, 3]

    def test_each_stays_near_its_gpu(self) -> None:
        left, right = replace(ONE, near=(0, 1)), replace(ONE, near=(2, 3))
        ranks = [left, right, left, right]
        assert [own_cores(ranks, rank) for rank in range(4)] == [(0,), (2,), (1,), (3,)]

    @pytest.mark.parametrize(
        "ranks",
        [
            [ONE],
            [ONE, replace(ONE, machine="other")],
            [ONE] * 5,  # some would have none to themselves
            [ONE, replace(ONE, near=(0, 1))],  # bound by somebody else, or GPUs that are known of some ranks only
            [replace(ONE, machine="")] * 2,  # no /proc
        ],
    )
    def test_else_nobody_is_bound(self, ranks: list[Facts]) -> None:
        assert [own_cores(ranks, rank) for rank in range(len(ranks))] == [None] * len(ranks)


def test_this_machine_can_be_read() -> None:
    seen = cores.facts()
    assert seen.machine and set(seen.cores) == os.sched_getaffinity(0)
    assert 1 <= cores.free_cores() <= len(seen.cores)
