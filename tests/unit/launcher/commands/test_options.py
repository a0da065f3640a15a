"""The options as typed become a request; what they leave open comes from the job that is resumed."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.base.values import switch
from launcher.commands.options import (
    TrainOptions,
    parse_gpus,
    parse_nodes,
    parse_ranks,
    parse_variables,
    split_arguments,
    to_request,
)
from launcher.job.folder import Earlier, JobFolder

STYLE = "import argparse\nargparse.ArgumentParser().add_argument('--local_rank')\n"


@pytest.fixture
def from_job(tmp_path: Path) -> Earlier:
    (tmp_path / "script.py").write_text(STYLE)
    return Earlier(
        given="RESUME=job",
        stored={},
        folder=JobFolder(path=tmp_path),
        script=str(tmp_path / "script.py"),
        arguments=("--lr", "a b"),
        data=str(tmp_path),
        launch_style="",
    )


def test_a_resumed_job_inherits_script_arguments_data_and_launch_style(from_job: Earlier, tmp_path: Path) -> None:
    request = to_request(TrainOptions(), from_job)
    assert (request.program.script, request.program.arguments) == (tmp_path / "script.py", ("--lr", "a b"))
    assert request.data == tmp_path
    assert request.program.local_rank_flag == "", "as it was started with LAUNCH_STYLE=0, or with none"


def test_the_users_own_options_win_over_the_resumed_jobs(from_job: Earlier, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(STYLE)
    request = to_request(TrainOptions(script=str(tmp_path / "other.py"), args="--lr 2"), from_job)
    assert (request.program.script, request.program.arguments) == (tmp_path / "other.py", ("--lr", "2"))
    assert request.program.local_rank_flag == "--local_rank"


@pytest.mark.parametrize("style", ["--local-rank", "--local_rank"])
def test_a_resumed_job_keeps_its_spelling(from_job: Earlier, style: str) -> None:
    assert to_request(TrainOptions(), replace(from_job, launch_style=style)).program.local_rank_flag == style


def test_a_resumed_job_keeps_starting_its_own_processes(from_job: Earlier) -> None:
    assert to_request(TrainOptions(), replace(from_job, launch_style="spawn")).program.spawn
    assert not to_request(TrainOptions(launch_style="0"), replace(from_job, launch_style="spawn")).program.spawn


def test_a_wrong_launch_style_is_told_all_that_are_right() -> None:
    right = r"LAUNCH_STYLE=x: .* 1 .* 0 .*--local-rank, --local_rank, or spawn"
    with pytest.raises(RingmasterError, match=right) as raised:
        to_request(TrainOptions(launch_style="x"), None)
    assert raised.value.exit_code == ExitCode.USAGE


class TestPlaceholders:
    def test_a_resumed_jobs_arguments_are_filled_in_as_they_were(self, from_job: Earlier) -> None:
        earlier = replace(from_job, arguments=("{node_rank}",), placeholders=True)
        assert to_request(TrainOptions(), earlier).placeholders
        assert not to_request(TrainOptions(placeholders="0"), earlier).placeholders
        assert not to_request(TrainOptions(args="{other}"), earlier).placeholders, "new words, every byte kept"
        assert to_request(TrainOptions(args="{nodes}", placeholders="1"), from_job).placeholders

    def test_an_unknown_one_is_refused_at_once(self, from_job: Earlier) -> None:
        options = TrainOptions(script=str(from_job.script), args="--rank {nodez}", placeholders="1")
        with pytest.raises(RingmasterError, match=r"ARGS: \{nodez\} is no placeholder"):
            to_request(options, None)
        assert not to_request(replace(options, placeholders=""), None).placeholders

    def test_they_are_not_for_the_trainer(self) -> None:
        with pytest.raises(RingmasterError, match="for a program of yours"):
            to_request(TrainOptions(placeholders="1"), None)


def test_one_machines_script_is_one_nodes_unless_the_user_says_more(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import torch.multiprocessing as mp, torch.distributed as dist\n"
        "def work(rank): dist.init_process_group('gloo', rank=rank, world_size=2)\n"
        "mp.spawn(work, nprocs=2)\n"
    )
    options = TrainOptions(script=str(path))
    assert [to_request(replace(options, nodes=nodes), None).nodes for nodes in ("", "2")] == [1, 2]
    assert to_request(replace(options, launch_style="0"), None).nodes is None


def test_without_a_script_it_is_the_trainer() -> None:
    program = to_request(TrainOptions(args="--epochs 1"), None).program
    assert (program.script, program.root, program.words(ROOT)) == (None, ROOT, ("-u", "-m", "trainer"))


@pytest.mark.parametrize("options", [{"launch_style": "yes"}, {"data": "/no/such"}, {"script": "/no/such.py"}])
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(RingmasterError):
        to_request(TrainOptions(**options), None)


def test_switches() -> None:
    assert [switch("X", text) for text in ("", "0", "1")] == [False, False, True]
    with pytest.raises(RingmasterError, match="X=yes"):
        switch("X", "yes")


def test_secrets_are_checked_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "my secrets"
    file.write_text("# theirs\nKEY=geheim\n")
    request = to_request(TrainOptions(secrets=str(file)), None)
    assert request.secrets == file
    assert "geheim" not in repr(request)


@pytest.mark.parametrize("where", ["data/secrets", "data/deep/secrets", "data"])
@pytest.mark.parametrize("how", ["itself", "through a link", "resumed"])
def test_secrets_within_the_data_are_refused(tmp_path: Path, from_job: Earlier, where: str, how: str) -> None:
    file = tmp_path / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("KEY=geheim\n")
    data, given = tmp_path / "data", file
    if how == "through a link":
        given = tmp_path / "link"
        given.symlink_to(file)
    options = TrainOptions(secrets=str(given), data="" if how == "resumed" else str(data))
    with pytest.raises(RingmasterError, match="lies in DATA, which stays on the nodes") as raised:
        to_request(options, replace(from_job, data=str(data)) if how == "resumed" else None)
    assert "geheim" not in str(raised.value)


def test_secrets_beside_the_data_are_fine(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data.env").write_text("KEY=geheim\n")
    request = to_request(TrainOptions(secrets=str(tmp_path / "data.env"), data=str(tmp_path / "data")), None)
    assert (request.secrets, request.data) == (tmp_path / "data.env", tmp_path / "data")


@pytest.mark.parametrize("content", [None, b"no equals sign: geheim", b"=geheim", b"KEY=\xff\x00geheim"])
def test_secrets_that_can_not_be_used_are_refused_without_showing_them(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secrets"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RingmasterError, match=r"^SECRETS: ") as raised:
        to_request(TrainOptions(secrets=str(file)), None)
    assert "geheim" not in str(raised.value)


class TestEnv:
    @pytest.mark.parametrize(
        ("text", "variables"),
        [
            ("", {}),
            ("NCCL_ALGO=Ring", {"NCCL_ALGO": "Ring"}),
            ("""A='x y' B="it's $HOME" C= D=a=b""", {"A": "x y", "B": "it's $HOME", "C": "", "D": "a=b"}),
            (
                "TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=3",
                {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "3"},
            ),
        ],
    )
    def test_words_become_variables(self, text: str, variables: dict[str, str]) -> None:
        assert to_request(TrainOptions(env=text), None).variables == variables == parse_variables(text)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("NCCL_DEBUG", "is no NAME=value"),
            ("=1", "can't name a variable"),
            ("a-b=1", "can't name a variable"),
            ("A='1", "no closing quotation"),
            ("A=1 A=2", "A is given twice"),
            ("'A=1\n2'", "control characters"),
            ("A=caf\udce9", "not UTF-8"),
            ("RUN_DIR=/x", "RUN_DIR is set for each job"),
            ("LOCAL_RANK=0", "LOCAL_RANK is set for each job"),
            ("CUDA_VISIBLE_DEVICES=0", "choose them with GPUS"),
            ("GLOO_IFACE=eth0", "did you mean GLOO_SOCKET_IFNAME"),
            ("NCCL_DEBUG=LOUD", "must be one of VERSION, WARN"),
        ],
    )
    def test_what_is_no_variable_of_the_users_is_refused(self, text: str, says: str) -> None:
        with pytest.raises(RingmasterError, match=f"^ENV: .*{says}"):
            to_request(TrainOptions(env=text), None)

    @pytest.mark.parametrize("name", ["HF_TOKEN", "api_key", "MySecretThing", "DB_PASSWORD", "APIKEY"])
    def test_secrets_belong_elsewhere_and_are_not_shown(self, name: str) -> None:
        with pytest.raises(RingmasterError, match=f"^ENV: {name} .*SECRETS=<file>") as raised:
            parse_variables(f"{name}=geheim")
        assert "geheim" not in str(raised.value)

    def test_nccl_debug_is_short_for_it(self) -> None:
        assert to_request(TrainOptions(nccl_debug="INFO", env="A=1"), None).variables == {
            "A": "1",
            "NCCL_DEBUG": "INFO",
        }
        with pytest.raises(RingmasterError, match="NCCL_DEBUG is given twice"):
            to_request(TrainOptions(nccl_debug="INFO", env="NCCL_DEBUG=WARN"), None)
        with pytest.raises(RingmasterError, match=r"^NCCL_DEBUG=LOUD: must be"):
            to_request(TrainOptions(nccl_debug="LOUD"), None)

    def test_a_resumed_job_inherits_it_as_it_does_arguments(self, from_job: Earlier) -> None:
        earlier = replace(from_job, variables={"NCCL_ALGO": "Ring"})
        assert to_request(TrainOptions(), earlier).variables == {"NCCL_ALGO": "Ring"}
        assert to_request(TrainOptions(nccl_debug="INFO"), earlier).variables == {
            "NCCL_ALGO": "Ring",
            "NCCL_DEBUG": "INFO",
        }
        assert to_request(TrainOptions(env="A=1"), earlier).variables == {"A": "1"}


def test_ranks_come_from_the_option_else_from_the_resumed_job(from_job: Earlier, tmp_path: Path) -> None:
    with_one = replace(from_job, ranks=1)
    assert to_request(TrainOptions(), with_one).ranks == 1
    assert to_request(TrainOptions(ranks="2"), with_one).ranks == 2
    assert to_request(TrainOptions(script=str(tmp_path / "script.py")), with_one).ranks is None, "another script"


@pytest.mark.parametrize(
    ("args", "strategy"),
    [("--strategy dp", "dp"), ("", "ddp"), ("--strategy none --help", "")],
)
def test_the_trainers_strategy_is_read_from_its_arguments(args: str, strategy: str) -> None:
    assert to_request(TrainOptions(args=args), None).strategy == strategy


@pytest.mark.parametrize("args", ["--strategy no-such", "--no-such 3"])
def test_a_slip_in_the_trainers_arguments_is_refused_before_anything_is_looked_at(args: str) -> None:
    with pytest.raises(RingmasterError, match=r"^ARGS: ") as raised:
        to_request(TrainOptions(args=args), None)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_script_may_have_a_strategy_of_its_own(from_job: Earlier) -> None:
    assert to_request(TrainOptions(args="--strategy dp"), from_job).strategy == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("--lr 0.1", ("--lr", "0.1")),
        ('--note "it\'s $HOME"', ("--note", "it's $HOME")),
        ("'$(rm -rf /)' ';' `x`", ("$(rm -rf /)", ";", "`x`")),
        ("'a\nb' \\$\\$ ü训练", ("a\nb", "$$", "ü训练")),
        ("'' # -- x", ("", "#", "--", "x")),
    ],
)
def test_arguments_split_as_posix_words(text: str, words: tuple[str, ...]) -> None:
    assert split_arguments(text) == words


@pytest.mark.parametrize("text", ["'open", '"', "back\\"])
def test_an_open_quote_is_an_error(text: str) -> None:
    with pytest.raises(RingmasterError, match="ARGS"):
        split_arguments(text)


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1.5", "2 ", "٣", "99999999999"])
def test_bad_node_counts(text: str) -> None:
    with pytest.raises(RingmasterError, match="NODES"):
        parse_nodes(text)


@pytest.mark.parametrize("text", ["0", "-1", "all", "1.5", "99999"])
def test_bad_rank_counts(text: str) -> None:
    with pytest.raises(RingmasterError, match="RANKS"):
        parse_ranks(text)


@pytest.mark.parametrize("text", ["-1", "a b", "0,,1", "1.5", ";"])
def test_bad_gpus(text: str) -> None:
    with pytest.raises(RingmasterError, match="GPUS"):
        parse_gpus(text)
