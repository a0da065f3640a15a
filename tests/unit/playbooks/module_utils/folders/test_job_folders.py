"""Where jobs and data lie: which folders are made and for whom, which are refused, and the messages."""

from typing import Any

import pytest
from job_folders import folders_findings, folders_plan, uncollected_line

JOBS, DATA = "/var/lib/ringmaster/jobs", "/var/lib/ringmaster/data"
OURS = {"mode": "0700", "uid": 1000, "gid": 1001}


def fact(**changed: Any) -> dict[str, Any]:
    return {"user": {"uid": 1000, "gid": 1001}, "jobs": [], "folders": {JOBS: OURS, DATA: OURS}, **changed}


def plan(jobs: str = JOBS, data: str = DATA, **changed: Any) -> dict[str, Any]:
    return folders_plan(fact(**changed), jobs, data, 10001)


def test_as_they_shall_be_there_is_nothing_to_do() -> None:
    assert plan() == {"problem": "", "uid": 1000, "gid": 1001, "folders": []}
    assert folders_findings(fact(), plan(), []) == []


def test_what_is_missing_is_made_for_the_ssh_user() -> None:
    made = plan(folders={JOBS: None, DATA: None})["folders"]
    assert made == [{"path": JOBS, "jobs": True, **OURS}, {"path": DATA, "jobs": False, **OURS}]


def test_for_root_it_is_the_images_own_user() -> None:
    found = plan(user={"uid": 0, "gid": 0})
    assert (found["uid"], found["gid"]) == (10001, 10001)
    assert {(one["uid"], one["gid"]) for one in found["folders"]} == {(10001, 10001)}


@pytest.mark.parametrize("change", [{"mode": "0755"}, {"uid": 0}, {"gid": 0}])
def test_each_difference_is_mended_and_said(change: dict[str, Any]) -> None:
    here = {JOBS: OURS, DATA: {**OURS, **change}}
    assert [one["path"] for one in plan(folders=here)["folders"]] == [DATA]
    (said,) = folders_findings(fact(folders=here), plan(folders=here), [DATA])
    assert said.startswith(f"{DATA} is ")
    assert said.endswith("not 1000:1001 0700: make provision TAGS=job_folders")


def test_what_is_missing_is_said_before_the_command_that_mends_it() -> None:
    none = {JOBS: None, DATA: None}
    assert folders_findings(fact(folders=none), plan(folders=none), [JOBS, DATA]) == [
        f"{JOBS} is missing",
        f"{DATA} is missing: make provision TAGS=job_folders",
    ]


def test_a_folder_that_its_owner_cannot_reach_is_named() -> None:
    (said,) = folders_findings(fact(), plan(), [DATA])
    assert said.startswith(f"1000:1001, who runs the jobs, can't write to {DATA}: ")


@pytest.mark.parametrize(
    "path",
    ["", "jobs", "~/jobs", "/", "/data", "//data", "/data/", "/a/../b/c", "/a//b", "/a/ b", "/a/b:c", "/a/b\n", 7],
)
def test_places_that_cannot_be_used(path: Any) -> None:
    assert plan(jobs=path)["problem"].startswith(f"ringmaster_job_dir: '{path}' ")
    assert plan(data=path)["problem"].startswith(f"ringmaster_data_dir: '{path}' ")
    assert folders_findings(fact(), plan(jobs=path), []) == [plan(jobs=path)["problem"]]


@pytest.mark.parametrize(("jobs", "data"), [("/d/x", "/d/x"), ("/d/x", "/d/x/data"), ("/d/x/jobs", "/d/x")])
def test_neither_lies_in_the_other(jobs: str, data: str) -> None:
    assert "neither may lie in the other" in plan(jobs, data)["problem"]


def test_neighbours_are_not_in_each_other() -> None:
    assert plan("/d/x", "/d/x-data")["problem"] == ""


def test_folders_are_not_given_to_another_user_while_a_job_runs() -> None:
    others = {JOBS: {**OURS, "uid": 1002}, DATA: OURS}
    busy = fact(folders=others, jobs=["night"])
    assert "job night runs there" in folders_plan(busy, JOBS, DATA, 10001)["problem"]
    new = fact(folders={JOBS: None, DATA: {**OURS, "mode": "0755"}}, jobs=["night"])
    assert folders_plan(new, JOBS, DATA, 10001)["problem"] == ""


def test_who_has_not_fetched_is_told_how() -> None:
    said = uncollected_line([f"{JOBS}/night"])
    assert said == (
        "results of night lie there and were never fetched: make logs NAME=night fetches them; to do without them: "
        f"rm -r {JOBS}/night there; then reset again"
    )
    assert "results of a, b, c, d, e and 2 more lie there" in uncollected_line([f"{JOBS}/{name}" for name in "abcdefg"])
