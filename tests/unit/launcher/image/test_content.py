import io
import shutil
import tarfile
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from launcher.image import content
from launcher.image.content import Wanted


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("docker", "requirements", "trainer", "launcher"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(content, "ROOT", tmp_path)
    return tmp_path


def names(wanted: Wanted) -> tuple[str, str, str, str]:
    layers = content.packages_tag(wanted, "sha256:1")
    more = content.requirements_tag(wanted, layers)
    return content.base_tag("amd64"), layers, more, content.train_tag(layers)


def test_the_context_holds_what_the_dockerfile_uses_and_nothing_else(checkout: Path) -> None:
    (checkout / "trainer" / "__pycache__").mkdir()
    (checkout / "trainer" / "__pycache__" / "run.pyc").write_bytes(b"")
    (checkout / "trainer" / ".loop.py.swp").write_bytes(b"")
    with tarfile.open(fileobj=io.BytesIO(content.context(Wanted(cuda="12", requirements=b"einops\n")))) as tar:
        found = {entry.name: entry for entry in tar}
    trainer = {path.relative_to(ROOT).as_posix() for path in (ROOT / "trainer").rglob("*.py")}
    assert {name for name in found if name.startswith("trainer/")} == trainer
    assert {name for name in found if not name.startswith("trainer/")} == {
        *("docker/Dockerfile", "docker/check.py", "docker/dpkg.cfg", "docker/install", "docker/packages.txt"),
        *("requirements/installer.txt", "requirements/trainer-cuda12.txt", "requirements/user.txt"),
        *("launcher/on_node/rank.py", "requirements/ringmaster_exit.py", "requirements/ringmaster_exit.pth"),
    }
    assert found["docker/install"].mode == 0o755 and found["trainer/training/loop.py"].mode == 0o644


def test_equal_files_are_an_equal_context(checkout: Path) -> None:
    before = content.context(Wanted())
    (checkout / "trainer" / "training" / "loop.py").touch()
    assert content.context(Wanted()) == before


@pytest.mark.parametrize(
    "name", ["trainer/training/loop.py", "launcher/on_node/rank.py", "requirements/ringmaster_exit.py"]
)
def test_a_line_of_ours_moves_only_the_top_layer(checkout: Path, name: str) -> None:
    base, layers, more, top = names(Wanted())
    trainer = content.trainer_hash()
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert names(Wanted())[:3] == (base, layers, more) and names(Wanted())[3] != top
    assert content.trainer_hash() != trainer


def test_what_the_layers_depend_on(checkout: Path) -> None:
    before = names(Wanted())
    assert names(Wanted(cuda="13")) == before
    assert names(Wanted(cuda="12"))[1] != before[1]
    assert content.packages_tag(Wanted(), "sha256:2") != before[1]
    assert content.base_tag("arm64") != before[0]
    other = names(Wanted(requirements=b"einops\n"))
    assert other[1] == before[1] and other[2] != before[2]
    with (checkout / "requirements" / "trainer.txt").open("a") as file:
        file.write("# changed\n")
    assert names(Wanted())[1] != before[1]


def test_which_lines_of_the_dockerfile_cost_the_big_layer(checkout: Path) -> None:
    before = names(Wanted())
    dockerfile = checkout / "docker" / "Dockerfile"
    text = dockerfile.read_text()
    dockerfile.write_text("# a comment\n" + text)
    assert names(Wanted()) == before
    dockerfile.write_text(text + "LABEL a=b\n")
    after = names(Wanted())
    assert after[:2] == before[:2] and after[2] != before[2] and after[3] != before[3]
    dockerfile.write_text(text.replace("FROM runtime AS packages", "FROM runtime AS packages\nENV A=b"))
    assert names(Wanted())[1] != before[1]


def test_the_dockerfile_needs_no_registry_for_itself() -> None:
    assert "# syntax" not in (ROOT / "docker" / "Dockerfile").read_text().replace("no `# syntax=` line", "")


def test_packages_without_their_reasons() -> None:
    found = content.system_packages()
    assert {"python3", "g++", "tini"} <= set(found) and not any(" " in name or "#" in name for name in found)


@pytest.mark.parametrize(
    ("torch", "asked"),
    [
        ("2.9", "torch==2.9.*\ntorchvision\nnumpy>=2,<3\n"),
        ("2.9.1", "torch==2.9.1\ntorchvision\nnumpy>=2,<3\n"),
        ("2.9.1+cu128", "torch==2.9.1+cu128\ntorchvision\nnumpy>=2,<3\n"),
        ("2.2", "torch==2.2.*\ntorchvision\nnumpy<2\n"),
    ],
)
def test_a_torch_of_the_users_choice_takes_the_place_of_the_lock(torch: str, asked: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(content.context(Wanted(torch=torch)))) as tar:
        names_there = tar.getnames()
        file = tar.extractfile("requirements/chosen.in")
        assert file and file.read().decode() == asked
    assert not [name for name in names_there if name.startswith("requirements/trainer")]
    assert len({content.packages_tag(Wanted(torch=each), "sha256:1") for each in (torch, "2.8", "")}) == 3
