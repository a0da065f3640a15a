"""What keeps a job from starting, and what only warns: named for each node, with the way to fix it."""

import json
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode
from launcher.cluster.preflight import checks
from launcher.cluster.preflight.checks import run_checks
from launcher.cluster.preflight.findings import Candidate, JobNeeds, Report, rows
from launcher.cluster.preflight.gpus import GpuChoice, JobOnNode, choose_gpus, promised_gpus
from launcher.cluster.preflight.image import image_names
from launcher.cluster.preflight.probe_answer import Folder
from launcher.cluster.preflight.requirements import Requirements
from launcher.image.labels import Contents, ImageFacts, from_engine
from tests.support.probe_answers import ANSWER, answer, host, interface

LABELS = {"ringmaster.trainer": "t1", "ringmaster.cuda": "13.2", "ringmaster.packages": '{"torch": "2.15.0"}'}
IMAGE = ImageFacts(id="sha256:i", digests=frozenset({"sha256:d"}), architecture="amd64", labels=LABELS)
NEEDS = JobNeeds(image="sha256:r", trainer="t1")
GPU: dict[str, Any] = ANSWER["gpus"][0]


def candidate(name: str = "node1", settings: dict[str, Any] | None = None, **fields: Any) -> Candidate:
    """Return a node that passes every check except for what `fields` change; each has an address of its own."""
    here, probed = host(name, **settings or {}), answer(**fields)
    if "interfaces" not in fields:
        number = name.removeprefix("node")
        mine = [interface("eth1", f"10.0.0.{number}/24")]
        probed = answer(**{**fields, "interfaces": mine})
    return Candidate(host=here, answer=probed, choice=choose_gpus(probed, (), "all", promised_gpus(here)), image=IMAGE)


def problems(*candidates: Candidate, needs: JobNeeds = NEEDS) -> list[str]:
    return [str(problem) for problem in run_checks(candidates, needs).problems]


def warnings(*candidates: Candidate, needs: JobNeeds = NEEDS) -> list[str]:
    report = run_checks(candidates, needs)
    assert report.problems == ()
    return [str(warning) for warning in report.warnings]


def test_nodes_that_pass_every_check() -> None:
    nodes = [candidate("node1"), candidate("node2")]
    report = run_checks(nodes, NEEDS)
    assert report == Report(problems=(), warnings=())
    assert [(row.name, row.state) for row in rows(nodes, report)] == [("node1", "ok"), ("node2", "ok")]


def test_a_public_address_without_a_firewall() -> None:
    """On whatever interface: torch's store listens on all of them."""

    def node(name: str, firewall: str | None = "") -> Candidate:
        number = name.removeprefix("node")
        there = [interface("eth1", f"10.0.0.{number}/24"), interface("eth0", f"8.8.8.{number}/24")]
        return candidate(name, interfaces=there, firewall=firewall)

    (only,) = warnings(node("node1"), candidate("node2"), node("node3"))
    assert only.startswith("the whole internet reaches node1 (8.8.8.1), node3 (8.8.8.3), and no firewall runs there")
    assert "`ringmaster_firewall: cluster_only`" in only
    assert warnings(node("node1", "ufw"), node("node2", None), candidate("node3")) == []
    (only,) = warnings(*(node(f"node{number}") for number in range(1, 8)))
    assert "node5 (8.8.8.5) and 2 more nodes, and no firewall" in only


class TestProvisioning:
    def test_a_node_that_nobody_has_prepared(self) -> None:
        folder = {"path": "/jobs", "there": False, "writable": False, "free": None}
        (only,) = problems(candidate(comm_env=None, job_dir=folder))
        assert only == "node1: it is not provisioned: `make provision` (missing: /etc/ringmaster/comm.env, /jobs)"

    def test_a_folder_of_somebody_elses(self) -> None:
        folder = {"path": "/data", "there": True, "writable": False, "free": 10**12}
        (only,) = problems(candidate(data_dir=folder))
        assert "ops can't write to /data: `make provision TAGS=job_folders`" in only

    def test_an_engine_that_runs_no_jobs(self) -> None:
        node = replace(candidate("node2"), engine_problem="its engine is a toy: take a real one")
        assert problems(candidate(), node) == ["node2: its engine is a toy: take a real one"]

    @pytest.mark.parametrize(("free", "refused"), [(10**9 - 1, True), (10**9, False), (5 * 10**9 - 1, False)])
    def test_room(self, free: int, refused: bool) -> None:
        node = candidate()
        node = replace(
            node, answer=replace(node.answer, job_dir=Folder(path="/jobs", there=True, writable=True, free=free))
        )
        report = run_checks([node], NEEDS)
        assert bool(report.problems) == refused
        findings = report.problems or report.warnings
        assert "/jobs has " in findings[0].what
        assert "GB free" in findings[0].what

    def test_the_clusters_interface_is_gone(self) -> None:
        (only,) = problems(candidate(settings={"interface": "ib0"}))
        assert "there is no interface 'ib0'" in only

    def test_nccl_takes_the_first_address_of_the_interface(self) -> None:
        second = {
            "comm_env": {"RINGMASTER_CLUSTER_IP": "10.0.0.1"},
            "interfaces": [interface("eth1", "192.0.2.9/32", "10.0.0.1/24")],
        }
        (only,) = problems(candidate(**second))
        assert "NCCL would take 192.0.2.9, which comes first on eth1" in only
        assert problems(candidate(**second, settings={"backend": "gloo"})) == []
        assert problems(candidate(**second, settings={"comm_env": {"NCCL_SOCKET_IFNAME": "=eth1"}})) == []
        assert problems(candidate(**second, gpus=[])) == []

    @pytest.mark.parametrize(
        ("site", "needs", "setter"),
        [
            ({"GLOO_SOCKET_IFNAME": "eth9"}, {}, "ringmaster_comm_env"),
            ({"GLOO_SOCKET_IFNAME": "eth1"}, {"variables": {"GLOO_SOCKET_IFNAME": "eth9"}}, "ENV"),
            ({}, {"environment": {"GLOO_SOCKET_IFNAME": "eth9"}}, "your shell"),
        ],
    )
    def test_an_interface_in_a_variable_that_is_not_there(self, site: Any, needs: Any, setter: str) -> None:
        nodes = [candidate(settings={"comm_env": site}), candidate("node2", {"comm_env": site})]
        report = run_checks(nodes, replace(NEEDS, **needs))
        assert [(one.node, one.exit_code) for one in report.problems] == [
            ("node1", ExitCode.USAGE),
            ("node2", ExitCode.USAGE),
        ]
        assert f"GLOO_SOCKET_IFNAME=eth9 (from {setter}): no interface here fits eth9, there is eth1:" in str(
            report.problems[0]
        )

    def test_an_interface_that_a_stronger_variable_names_is_all_that_counts(self) -> None:
        needs = replace(NEEDS, environment={"GLOO_SOCKET_IFNAME": "eth9"}, variables={"GLOO_SOCKET_IFNAME": "eth1"})
        assert problems(candidate(), needs=needs) == []

    def test_loopback_reaches_nobody(self) -> None:
        (only,) = problems(candidate(interfaces=[interface("eth1", "127.0.1.1/8", mtu=1)]))
        assert "loopback" in only


class TestImage:
    def test_none_is_recorded(self) -> None:
        report = run_checks([replace(candidate(), image=None)], JobNeeds(image="", trainer="t1"))
        assert [(one.node, "`make image`" in one.what) for one in report.problems] == [("", True)]
        assert report.error.exit_code == ExitCode.USAGE

    def test_it_is_not_there(self) -> None:
        (only,) = problems(candidate(), replace(candidate("node2", image={"reference": "sha256:other"}), image=None))
        assert only == (
            "node2: the image sha256:r is not there; it has sha256:other: `make provision TAGS=train_image` brings it"
        )

    def test_another_one_is_there(self) -> None:
        other = replace(IMAGE, id="sha256:x", digests=frozenset())
        nodes = [candidate("node1"), candidate("node2"), replace(candidate("node3"), image=other)]
        (only,) = problems(*nodes)
        assert only.startswith("node3: its image (sha256:x) is not that of the other nodes (sha256:i)")

    def test_the_same_by_digest_under_another_id_is_fine(self) -> None:
        assert problems(candidate(), replace(candidate("node2"), image=replace(IMAGE, id="sha256:x"))) == []

    def test_a_foreign_image_that_lacks_torch_is_refused_once(self) -> None:
        contents = Contents(python="/usr/bin/python3", problem="ModuleNotFoundError: No module named 'torch'")
        foreign = replace(IMAGE, labels={}, contents=contents)
        nodes = [replace(candidate(f"node{number}"), image=foreign) for number in (1, 2)]
        (only,) = problems(
            *nodes, needs=replace(NEEDS, requirements=Requirements(path=Path("/r.txt"), content=b"pandas"))
        )
        assert only.startswith("the image sha256:r has no torch that can be imported (ModuleNotFoundError")

    def test_a_foreign_image_with_all_that_is_needed_is_used(self) -> None:
        packages = {"python": "3.12.1", "torch": "2.15.0", "torchvision": "0.29", "numpy": "2.0", "pandas": "2.0"}
        contents = Contents(python="/usr/bin/python3", site="/s", packages=packages, torch="2.15.0", torchrun=True)
        node = replace(candidate(), image=replace(IMAGE, labels={}, contents=contents))
        wanted = replace(NEEDS, requirements=Requirements(path=Path("/r.txt"), content=b"pandas"))
        assert warnings(node, needs=wanted) == [], "and not of another trainer: it has none"
        wanted = replace(NEEDS, requirements=Requirements(path=Path("/r.txt"), content=b"einops"), named=True)
        (only,) = problems(node, needs=replace(wanted, image="n/x@sha256:d"))
        assert only == (
            "/r.txt asks for einops: put it into your image and name its new digest (ringmaster_image), or take "
            "ringmaster_image out of the inventory: then `make image BASE=n/x@sha256:d REQUIREMENTS=/r.txt` builds on "
            "it (if it is a Debian or an Ubuntu)"
        )
        (only,) = problems(node, needs=wanted)
        assert "then `make image REQUIREMENTS=/r.txt` builds one of ours" in only, "an ID is nothing to build on"

    def test_no_way_out_of_an_image_that_the_inventory_names_is_one_that_is_refused(self) -> None:
        image = replace(IMAGE, labels={**LABELS, "ringmaster.architectures": "sm_90"})
        node = replace(candidate(gpus=[{**GPU, "driver": "535.1"}], architecture="aarch64"), image=image)
        needs = replace(NEEDS, named=True, trainer="t2")
        report = run_checks([node], needs)
        said = " ".join(one.what for one in (*report.problems, *report.warnings))
        assert "make image" not in said and said.count("(ringmaster_image)") == 4
        assert [one.lacks_image for one in report.warnings] == [False], "it is nobody's to renew"

    def test_a_torch_of_the_users_choice_that_the_trainer_is_too_new_for(self) -> None:
        packages = {"python": "3.11.2", "torch": "2.8.0", "torchvision": "0.23.0", "numpy": "2.0"}
        chosen = {**LABELS, "ringmaster.torch": "2.8", "ringmaster.packages": json.dumps(packages)}
        node = replace(candidate(), image=replace(IMAGE, labels=chosen))
        (only,) = problems(node, needs=replace(NEEDS, bundled=True))
        assert only.startswith("the image sha256:r has torch 2.8.0; the bundled trainer needs 2.10 or newer")
        assert only.endswith("`make image` without TORCH, or with a newer one")
        assert problems(node, needs=replace(NEEDS, bundled=False)) == []

    def test_an_older_trainer_is_a_warning(self) -> None:
        (only,) = warnings(candidate(), candidate("node2"), needs=replace(NEEDS, trainer="t2"))
        assert "another trainer than this checkout: `make image`" in only

    def test_another_architecture(self) -> None:
        (only,) = problems(candidate(), candidate("node2", architecture="aarch64"))
        assert only.startswith("node2: the image is for amd64, this node is arm64")

    def test_packages_that_it_lacks(self) -> None:
        (only,) = problems(
            candidate(), needs=replace(NEEDS, requirements=Requirements(path=Path("/r.txt"), content=b"pandas"))
        )
        assert only == "/r.txt asks for pandas: `make image REQUIREMENTS=/r.txt` puts it in"

    def test_as_the_engine_shows_it(self) -> None:
        shown = {"Id": "sha256:i", "RepoDigests": ["here/train@sha256:d"], "Architecture": "amd64"}
        assert from_engine({**shown, "Config": {"Labels": LABELS}}) == IMAGE
        assert from_engine({**shown, "RepoDigests": None, "Config": {"Labels": None}}).labels == {}

    def test_a_node_that_was_handed_it_knows_it_by_another_name(self) -> None:
        assert image_names(answer(), "sha256:r") == ("sha256:r", "sha256:i", "here@sha256:n")
        assert image_names(answer(), "sha256:else") == ("sha256:else",)
        assert image_names(answer(image=None), "sha256:r") == ("sha256:r",)


class TestGpus:
    def test_one_that_the_inventory_promises_is_missing(self) -> None:
        (only,) = problems(candidate(), candidate("node2", {"gpus": 2}, gpus=[GPU]))
        assert only.startswith("node2: the inventory promises 2 GPUs (ringmaster_gpus), nvidia-smi shows 1 (0 GPU-a)")

    def test_it_only_warns_if_the_user_chose_from_the_rest(self) -> None:
        node = candidate(settings={"gpus": 2}, gpus=[GPU])
        (only,) = warnings(replace(node, choice=choose_gpus(node.answer, (), "1", 2)))
        assert "the inventory promises 2 GPUs" in only

    def test_somebody_elses_process(self) -> None:
        held = [{"gpu": "GPU-b", "pid": 4242, "name": "python3", "memory_mib": 40000}]
        (only,) = problems(candidate(gpu_processes=held))
        assert only == "node1: GPU 1 is held by python3 (pid 4242, 40000 MiB): end it, or choose other GPUs (GPUS=)"

    def test_memory_that_nobody_claims_is_a_warning(self) -> None:
        (only,) = warnings(candidate(gpus=[{**GPU, "used_mib": 1025}]))
        assert "1025 MiB of GPU 0 are in use" in only

    @pytest.mark.parametrize(
        ("cuda", "driver", "reason"),
        [
            ("13.0", "580.65.06", ""),
            ("13.0", "575.57.08", "needs 580 or newer: `make image CUDA=12`, or install a newer driver"),
            ("13.0", "520.61.05", "needs 580 or newer: install a newer driver"),
            ("12.8", "525.60.13", ""),
            ("12.8", "470.82.01", "needs 525 or newer: install a newer driver"),
            ("11.8", "440.33.01", "needs 450 or newer"),
            ("14.1", "580.65.06", ""),
            ("", "418.39", ""),
            ("13.0", "[N/A]", ""),
        ],
    )
    def test_the_driver_and_the_images_cuda(self, cuda: str, driver: str, reason: str) -> None:
        image = replace(IMAGE, labels={**LABELS, "ringmaster.cuda": cuda})
        texts = problems(replace(candidate(gpus=[{**GPU, "driver": driver}]), image=image))
        assert [reason in one and f"its driver {driver} is too old" in one for one in texts] == [True] * bool(reason)

    def test_a_card_that_the_image_has_no_code_for(self) -> None:
        image = replace(IMAGE, labels={**LABELS, "ringmaster.architectures": "sm_75 sm_80 compute_120"})
        gpus = [{**GPU, "index": str(index), "capability": one} for index, one in enumerate(["7.0", "8.0", "7.0", ""])]
        node = replace(candidate(gpus=[{**gpu, "model": "V100"} for gpu in gpus]), image=image)
        (only,) = problems(node)
        assert only == (
            "node1: its GPU 0, 2 (V100) has compute capability 7.0, the image has code for sm_75 sm_80 compute_120: "
            "`make image CUDA=12`, choose other GPUs (GPUS=) or leave the node out (LIMIT=)"
        )
        assert problems(replace(node, choice=GpuChoice(devices=("1", "3"), by_user=True))) == []
        assert problems(replace(node, image=IMAGE)) == [], "an image without the label says nothing"

    def test_a_driver_that_nobody_uses_may_be_old(self) -> None:
        node = candidate(gpus=[{**GPU, "driver": "418.39"}])
        assert problems(replace(node, choice=GpuChoice(by_user=True))) == []

    def test_models_that_differ_are_a_warning(self) -> None:
        (only,) = warnings(candidate(), candidate("node2", gpus=[{**GPU, "model": "T4"}]))
        assert only == "GPU models differ (node1: A100; node2: T4): each step waits for the slowest"


class TestSecondJob:
    def test_is_refused_with_the_firsts_name(self) -> None:
        (only,) = problems(replace(candidate(), jobs=(JobOnNode(name="swift-otter", all_gpus=True),)))
        assert only.startswith("node1: job swift-otter runs there on all GPUs: `make status` shows it, ")
        assert "`make stop NAME=swift-otter`" in only

    def test_may_have_gpus_of_its_own(self) -> None:
        node, first = candidate(), JobOnNode(name="swift-otter", devices=("0",))
        second = choose_gpus(node.answer, [first], "1", None)
        assert problems(replace(node, choice=second, jobs=(first,))) == []

    def test_its_processes_are_no_strangers(self) -> None:
        held = [{"gpu": "GPU-a", "pid": 7, "name": "python3", "memory_mib": 40000}]
        (only,) = problems(replace(candidate(gpu_processes=held), jobs=(JobOnNode(name="j", all_gpus=True),)))
        assert "job j runs there" in only

    def test_a_name_that_a_job_there_has_already(self) -> None:
        report = run_checks([candidate(), candidate("node2", job_there=True)], replace(NEEDS, name="mine"))
        assert str(report.error) == "node2: there is a job mine on this node already; choose another NAME"
        assert report.error.exit_code == ExitCode.USAGE


class TestBetweenNodes:
    def test_one_address_for_two_nodes(self) -> None:
        mine = [interface("eth1", "172.17.0.1/16")]
        report = run_checks([candidate(interfaces=mine), candidate("node2", interfaces=mine)], NEEDS)
        (only,) = report.problems
        assert only.what.startswith("node1 and node2 both say that the others reach them at 172.17.0.1 (eth1, eth1)")
        assert report.error.exit_code == ExitCode.USAGE

    @pytest.mark.parametrize(("ahead", "warns"), [(5.0, False), (-5.0, False), (30.0, True), (-30.0, True)])
    def test_clocks(self, ahead: float, warns: bool) -> None:
        texts = warnings(candidate(), candidate("node2", time=ANSWER["time"] + ahead))
        fast, slow = ("node2", "node1") if ahead > 0 else ("node1", "node2")
        assert [one.startswith(f"{fast}: its clock is 30 s ahead of {slow}'s") for one in texts] == [True] * warns

    def test_cores(self) -> None:
        (only,) = warnings(candidate(), candidate("node2", cores=2))
        assert only == (
            "cores differ (node1: 8; node2: 2): what the CPU does for a step may take up to 4.0 times as long on node2"
        )

    def test_mtu(self) -> None:
        jumbo = [interface("eth1", "10.0.0.2/24", mtu=9000)]
        assert warnings(candidate(), candidate("node2", interfaces=jumbo)) == [
            "MTUs differ (node1: 1500; node2: 9000): large packets may get lost; set the same on all"
        ]

    def test_a_network_that_they_share_is_not_the_one_they_use(self) -> None:
        nodes = [
            candidate(
                f"node{number}",
                interfaces=[
                    interface("eth1", f"10.0.{number}.1/24"),
                    interface("lan0", f"192.168.7.{number}/24"),
                ],
            )
            for number in (1, 2)
        ]
        (only,) = warnings(*nodes)
        assert "node1 (10.0.1.1/24) and node2 (10.0.2.1/24)" in only
        assert "share one (lan0)" in only

    def test_routed_networks_are_nobodys_mistake(self) -> None:
        far = [interface("eth1", "10.9.9.9/24")]
        assert warnings(candidate(), candidate("node2", interfaces=far)) == []


def test_what_could_not_be_looked_at_is_a_warning() -> None:
    assert warnings(candidate(listening=None, troubles={"listening": "no such file"})) == [
        "node1: the probe could not find out its listening: no such file"
    ]


def test_all_problems_are_shown_together() -> None:
    broken = candidate("node2", {"gpus": 3}, comm_env=None)
    nodes = [candidate(), broken, replace(candidate("node3"), image=None)]
    report = run_checks(nodes, NEEDS)
    table = rows(nodes, report)
    assert [(row.name, row.state) for row in table] == [
        ("node1", "ok"),
        ("node2", "refused"),
        ("node2", "refused"),
        ("node3", "refused"),
    ]
    assert str(report.error) == "node2, node3: can't run the job (see the table); nothing was started"
    assert report.error.exit_code == ExitCode.NOT_STARTED


def test_findings_come_node_by_node_and_those_about_all_nodes_first() -> None:
    broken = {"comm_env": None, "gpus": None, "troubles": {"gpus": "it fails", "memory": "no such file"}}
    nodes = [candidate("node2", {"gpus": 3}, **broken), candidate("node1", {"gpus": 3}, **broken)]
    report = run_checks(nodes, replace(NEEDS, image=""))
    assert [problem.node for problem in report.problems] == ["", "node2", "node2", "node1", "node1"]
    assert [warning.node for warning in report.warnings] == ["node2", "node1"]


def test_a_single_problem_is_the_error_itself() -> None:
    report = run_checks([replace(candidate(), image=None)], NEEDS)
    assert str(report.error) == str(report.problems[0])


def test_a_usage_error_and_a_failed_check_together_exit_as_the_check() -> None:
    node = replace(candidate(comm_env=None), image=None)
    assert run_checks([node], JobNeeds(image="", trainer="t1")).error.exit_code == ExitCode.NOT_STARTED


def test_every_check_that_is_written_is_run() -> None:
    public = {name: each for name, each in vars(checks).items() if isfunction(each) and not name.startswith("_")}
    written = {each for each in public.values() if each.__module__ == checks.__name__} - {run_checks}
    assert written == set(checks.CHECKS)
    assert len(checks.CHECKS) == len(written)
