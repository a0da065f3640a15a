"""Planning a job and placing it on its nodes: on all or on none. The nodes are folders here."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster import site as cluster_site
from launcher.cluster.site import ClusterSite
from launcher.cluster.transfer.data import list_data
from launcher.image.labels import ImageFacts
from launcher.image.supply import Remedy
from launcher.job import container
from launcher.job.folder import create
from launcher.job.plan import RANK_WORDS, Plan
from launcher.job.program import user_script
from launcher.job.request import Request
from launcher.ssh.connection import LostError
from tests.support.cluster.cluster_site import BUNDLED, ID, IMAGE, REFERENCE, Cluster
from tests.support.probe_answers import ANSWER


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def planned(cluster: Cluster, request: Request = BUNDLED) -> tuple[ClusterSite, Plan]:
    site = cluster.site()
    return site, site.plan(cluster.folder, request, resumes=False)


def test_the_plan_is_made_of_what_the_nodes_tell(cluster: Cluster) -> None:
    cluster.remotes["node1"].answer["time"] = ANSWER["time"] + 7.0
    site, plan = planned(cluster)
    assert [(node.address, node.interface, node.image, node.node_rank) for node in plan.nodes] == [
        ("10.0.0.1", "eth1", REFERENCE, 0),
        ("10.0.0.2", "eth1", REFERENCE, 1),
    ]
    first = plan.nodes[0]
    assert first.container is not None
    assert (first.container.image, first.container.user) == (ID, "1000:1000")
    assert plan.port not in ANSWER["listening"], "free on the head"
    assert f"--master-port={plan.port}" in plan.nodes[1].argv and "--master-addr=10.0.0.1" in plan.nodes[1].argv
    assert (first.environment["RUN_DIR"], first.working_folder) == ("/job/run", "/opt/ringmaster")
    assert "torch 2.9" in site.versions and "CUDA 13.2" in site.versions
    assert cluster.jobs() == [[], []], "nothing was touched"
    assert first.container.binds[3].source == str(cluster.remotes["node1"].data)


def test_what_one_node_lacks_refuses_the_job(cluster: Cluster) -> None:
    cluster.remotes["node2"].answer["comm_env"] = None
    with pytest.raises(RingmasterError, match="node2") as raised:
        planned(cluster)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_a_job_that_is_there_refuses_another_and_is_named(cluster: Cluster) -> None:
    cluster.remotes["node2"].fake.put("first")
    with pytest.raises(RingmasterError, match=r"node2: .*first") as raised:
        planned(cluster)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


class Supply:
    """Finds `remedy`; brings the image to all nodes, and remembers what it was asked."""

    def __init__(self, cluster: Cluster, reference: str = REFERENCE, **labels: str) -> None:
        self.cluster, self.reference = cluster, reference
        self.labels = {**IMAGE["Config"]["Labels"], **labels}
        self.asked: list[tuple[str, dict[str, bool]]] = []
        self.brought = 0

    def find_remedy(self, reference: str, images: Mapping[str, Any], remotes: Any, **_: str) -> Remedy:
        self.asked.append((reference, {name: image is not None for name, image in images.items()}))
        coming = ImageFacts(id="coming", architecture="amd64", labels=self.labels, expected=True)
        return Remedy(
            what="it is not there",
            does="bring it",
            reference=self.reference,
            images=dict.fromkeys(images, coming),
            nodes=tuple(images),
        )

    def bring(self, remedy: Remedy) -> str:
        self.brought += 1
        for node in self.cluster.remotes.values():
            node.image = IMAGE
        return remedy.reference


def test_a_node_without_the_image_gets_it_before_the_job(cluster: Cluster) -> None:
    cluster.remotes["node2"].image = None
    supply = Supply(cluster)
    site = cluster.site(supply=supply)
    plan = site.plan(cluster.folder, BUNDLED, resumes=False)
    assert supply.asked == [(REFERENCE, {"node1": True, "node2": False})]
    assert plan.notes[0] == "it is not there: make train would bring it" and supply.brought == 0
    assert site.equip(plan) and supply.brought == 1
    plan = site.plan(cluster.folder, BUNDLED, resumes=False)
    assert [node.container and node.container.image for node in plan.nodes] == [ID, ID]
    assert not site.equip(plan) and not any("make train would" in note for note in plan.notes)


def test_where_none_is_recorded_the_job_runs_the_one_that_was_built(cluster: Cluster) -> None:
    for node in cluster.remotes.values():
        node.image = None
    supply = Supply(cluster, ID)
    site = cluster.site(image="", supply=supply)
    assert site.equip(site.plan(cluster.folder, BUNDLED, resumes=False))
    plan = site.plan(cluster.folder, BUNDLED, resumes=False)
    assert supply.asked == [("", {"node1": False, "node2": False})] and plan.nodes[1].image == ID


def test_an_image_that_was_brought_and_is_not_there_refuses_the_job(cluster: Cluster) -> None:
    cluster.remotes["node2"].image = None
    site = cluster.site(supply=Supply(cluster))
    assert site.equip(site.plan(cluster.folder, BUNDLED, resumes=False))
    cluster.remotes["node2"].image = None
    with pytest.raises(RingmasterError, match=r"node2: the image .* is not there"):
        site.plan(cluster.folder, BUNDLED, resumes=False)


def test_an_older_image_is_renewed_and_a_present_one_left_alone(cluster: Cluster) -> None:
    supply = Supply(cluster)
    site = cluster.site(supply=supply)
    assert not site.equip(site.plan(cluster.folder, BUNDLED, resumes=False))
    assert supply.asked == []
    old = {**IMAGE, "Config": {"Labels": {**IMAGE["Config"]["Labels"], "ringmaster.trainer": "older"}}}
    for node in cluster.remotes.values():
        node.image = old
    plan = site.plan(cluster.folder, BUNDLED, resumes=False)
    assert supply.asked == [(REFERENCE, {"node1": True, "node2": True})]
    assert not any("another trainer" in note for note in plan.notes), "that will be done with"


def test_what_else_refuses_the_job_comes_before_minutes_of_building(cluster: Cluster) -> None:
    cluster.remotes["node2"].image = None
    cluster.remotes["node2"].answer["comm_env"] = None
    supply = Supply(cluster)
    with pytest.raises(RingmasterError, match="node2"):
        cluster.site(supply=supply).plan(cluster.folder, BUNDLED, resumes=False)
    assert supply.asked == []


@pytest.mark.parametrize(
    ("name", "requirements", "gpus", "says"),
    [
        ("train.py", "einops\n", [], "asks for einops: `make image REQUIREMENTS="),
        ("tr\udce9.py", "", [], "SCRIPT: .*not UTF-8"),
        ("train.py", "", [{**ANSWER["gpus"][0], "driver": "470.1"}], "node2: its driver 470.1 is too old"),
    ],
)
def test_what_can_be_known_of_an_image_refuses_the_job_before_it_is_built(
    cluster: Cluster, tmp_path: Path, name: str, requirements: str, gpus: Any, says: str
) -> None:
    script = tmp_path / "theirs" / name
    script.parent.mkdir()
    script.write_text("print()\n")
    (script.parent / "requirements.txt").write_text(requirements)
    for node in cluster.remotes.values():
        node.image = None
    cluster.remotes["node2"].answer["gpus"] = gpus
    supply = Supply(cluster)
    site = cluster.site(supply=supply)
    with pytest.raises(RingmasterError, match=says):
        site.plan(cluster.folder, Request(program=user_script(script, ())), resumes=False)
    assert supply.brought == 0


def test_packages_that_nobody_knows_yet_are_checked_once_they_are_there(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "theirs" / "train.py"
    script.parent.mkdir()
    script.write_text("print()\n")
    (script.parent / "requirements.txt").write_text("einops\n")
    cluster.remotes["node1"].image = cluster.remotes["node2"].image = None
    site = cluster.site(supply=Supply(cluster, **{"ringmaster.packages": ""}))
    request = Request(program=user_script(script, ()))
    assert site.equip(site.plan(cluster.folder, request, resumes=False))
    with pytest.raises(RingmasterError, match="asks for einops"):
        site.plan(cluster.folder, request, resumes=False)


FOREIGN = {**IMAGE, "Config": {"Labels": {"ringmaster.trainer": ""}}}
CONTENTS = {
    "python": "/opt/conda/bin/python",
    "site": "/opt/conda/lib/site-packages",
    "packages": {"python": "3.12.1", "torch": "2.15.0", "torchvision": "0.29", "numpy": "2.0"},
    "torch": "2.15.0",
    "torchrun": True,
    "cuda": "13.2",
    "problem": "",
    "capabilities": "",
    "architectures": "sm_80",
}


def foreign(cluster: Cluster, **changed: object) -> None:
    for node in cluster.remotes.values():
        node.image, node.contents = FOREIGN, json.dumps({**CONTENTS, **changed})


def test_a_foreign_image_is_used_as_it_is_with_our_files_beside_it(cluster: Cluster) -> None:
    foreign(cluster)
    site, plan = planned(cluster)
    create(cluster.folder, plan)
    site.place(plan, cluster.folder, BUNDLED)
    assert [remote.looked for remote in cluster.remotes.values()] == [1, 0], "the same image is on both"
    assert "torch 2.15.0" in site.versions and "CUDA 13.2" in site.versions
    for name, node in zip(cluster.remotes, plan.nodes, strict=True):
        ours = cluster.at(name) / "ours"
        assert node.argv[:3] == ("/opt/conda/bin/python", "-m", "torch.distributed.run")
        rank = ("/opt/conda/bin/python", "-IS", "/opt/ringmaster/launcher/on_node/rank.py")
        assert node.argv[-RANK_WORDS:] == rank and (ours / "launcher/on_node/rank.py").is_file()
        assert node.environment["RINGMASTER_PROGRAM"] == "/opt/conda/bin/python -u -m trainer"
        assert (ours / "trainer" / "__main__.py").is_file() and node.working_folder == "/opt/ringmaster"
        assert node.container is not None
        brought = {bind.target: bind for bind in node.container.binds if bind.source.startswith(str(ours))}
        assert all(bind.read_only and Path(bind.source).exists() for bind in brought.values())
        assert brought.keys() == {
            "/opt/ringmaster",
            "/opt/conda/lib/site-packages/ringmaster_exit.py",
            "/opt/conda/lib/site-packages/ringmaster_exit.pth",
        }


def test_a_foreign_image_for_the_trainer_and_for_scripts(cluster: Cluster, tmp_path: Path) -> None:
    foreign(cluster, packages={"python": "3.9.2", "torchvision": "1", "numpy": "1"})
    with pytest.raises(RingmasterError, match=r"the bundled trainer needs 3\.11") as raised:
        planned(cluster)
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    _, plan = planned(cluster, Request(program=user_script(script, ())))
    assert plan.nodes[0].environment["RINGMASTER_PROGRAM"] == "/opt/conda/bin/python -u /job/code/train.py"


def test_a_card_that_a_foreign_image_has_no_code_for(cluster: Cluster) -> None:
    foreign(cluster)
    cluster.remotes["node2"].answer["gpus"] = [{**ANSWER["gpus"][0], "capability": "7.0"}]
    with pytest.raises(RingmasterError, match=r"node2: .*compute capability 7\.0, the image has code for sm_80"):
        planned(cluster)


def test_an_image_that_can_not_be_asked_is_refused(cluster: Cluster) -> None:
    foreign(cluster)
    cluster.remotes["node1"].contents = "half an answer"
    with pytest.raises(RingmasterError, match=r"node1: the image .* can't be asked what is in it") as raised:
        planned(cluster)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def place(cluster: Cluster, request: Request = BUNDLED) -> None:
    site, plan = planned(cluster, request)
    create(cluster.folder, plan)
    site.place(plan, cluster.folder, request)


def test_every_node_gets_what_belongs_in_the_jobs_folder(cluster: Cluster, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("KEY=geheim\n")
    place(cluster, replace(BUNDLED, secrets=secrets))
    for name in cluster.remotes:
        folder = cluster.at(name)
        assert (folder / "secrets").read_text() == "KEY=geheim\n"
        assert (folder / "secrets").stat().st_mode & 0o777 == 0o600
        assert list((folder / "run/checkpoints").iterdir()) == []
        assert Plan.from_json(json.loads((folder / "plan.json").read_text())).name == "job"
        assert "geheim" not in (folder / "plan.json").read_text()
        assert (folder / "node").read_text() == name, "which the plan calls it"
        assert (cluster.remotes[name].data / "own").is_dir(), "mounted, so it must be there"
        assert not (folder / "code").exists(), "the trainer is in the image"


def test_if_one_node_refuses_none_keeps_anything(cluster: Cluster) -> None:
    other = cluster.at("node2")
    other.mkdir()
    (other / "token").write_text("another launcher's")
    with pytest.raises(RingmasterError, match="node2: there is a job job on this node already") as raised:
        place(cluster)
    assert raised.value.exit_code == ExitCode.USAGE
    assert cluster.jobs() == [[], ["job"]], "the other job's folder is not ours to remove"


def test_a_folder_that_was_made_while_its_answer_was_lost_is_removed_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C closes the connections while a node is still creating its folder."""

    def lost() -> None:
        assert cluster.jobs()[1] == ["job"]
        cluster.remotes["node2"].alive = False
        raise LostError("node2", "closed")

    def revived(remotes: Mapping[str, Any], pins: Path) -> dict[str, Any]:
        for remote in remotes.values():
            remote.alive = True
        return dict(remotes)

    monkeypatch.setattr(cluster_site, "revived", revived)
    cluster.remotes["node2"].after["prepare"] = lost
    with pytest.raises(LostError, match="node2"):
        place(cluster)
    assert cluster.jobs() == [[], []]


def test_two_launchers_of_one_name_do_not_remove_each_others_folders(cluster: Cluster) -> None:
    """Each was first on one node: both give way, and each removes its own folder and no other."""
    first, plan = planned(cluster)
    create(cluster.folder, plan)
    second = cluster.site()
    second.plan(cluster.folder, BUNDLED, resumes=False)

    def other_is_first() -> None:
        cluster.at("node2").mkdir()
        (cluster.at("node2") / "token").write_text(second._token)

    cluster.remotes["node2"].before["prepare"] = other_is_first
    with pytest.raises(RingmasterError, match="node2: there is a job job"):
        first.place(plan, cluster.folder, BUNDLED)
    assert cluster.jobs() == [[], ["job"]]
    second._discard(plan)
    assert cluster.jobs() == [[], []]


def test_a_script_whose_name_no_container_can_be_told_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "tr\udce9.py"
    script.write_text("print()\n")
    with pytest.raises(RingmasterError, match=r"SCRIPT: .*not UTF-8"):
        planned(cluster, Request(program=user_script(script, ())))


def test_data_whose_name_no_container_can_be_told_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "caf\udce9"
    data.mkdir()
    (data / "a").touch()
    with pytest.raises(RingmasterError, match=r"DATA: .*not UTF-8"):
        planned(cluster, replace(BUNDLED, data=data))


def test_code_that_does_not_arrive_takes_the_folders_with_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "theirs" / "train.py"
    script.parent.mkdir()
    script.write_text("print()\n")

    def fails(*_: Any, **__: Any) -> None:
        assert cluster.jobs() == [["job"], ["job"]]
        raise RingmasterError("node2: the connection is lost")

    monkeypatch.setattr(cluster_site, "upload_code", fails)
    with pytest.raises(RingmasterError, match="node2"):
        place(cluster, Request(program=user_script(script, ())))
    assert cluster.jobs() == [[], []]


def test_the_users_own_things_are_named_as_the_container_sees_them(cluster: Cluster, tmp_path: Path) -> None:
    script, data = tmp_path / "theirs" / "train.py", tmp_path / "my data"
    script.parent.mkdir()
    script.write_text("print()\n")
    data.mkdir()
    (data / "a").write_text("a")
    _, plan = planned(cluster, Request(program=user_script(script, ()), data=data))
    node = plan.nodes[0]
    assert node.container is not None and plan.code
    assert node.environment["DATA_DIR"] == f"/job/data/own/{list_data(data, print).hash}/my data"
    assert node.environment["RINGMASTER_PROGRAM"] == "/opt/venv/bin/python -u /job/code/train.py"
    own = container.node_folder(node.container, container.OWN_DATA)
    assert own == f"{cluster.remotes['node1'].data}/own"
    assert any(note.startswith("code: ") for note in plan.notes)
    assert any(note.startswith("data: ") for note in plan.notes)
