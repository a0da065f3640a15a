"""Whether a script starts its own processes on each node, told from syntax trees: nothing of it runs. Pure.

Only a script that can't take its place from torchrun is taken for one ([decision
42](../../docs/decisions/0042-what-counts-as-a-spawn-style-script.md)): many programs spawn in a branch that torchrun's
variables switch off.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

_STARTS = re.compile(r"torch\.multiprocessing(\.spawn)?\.(spawn|start_processes)")
_LAUNCHERS_VARIABLE = re.compile(
    r"(LOCAL_|GROUP_|NODE_)?RANK|(LOCAL_|GROUP_)?WORLD_SIZE|(TORCHELASTIC|SLURM|OMPI|PMIX?|MV2)_[A-Z_]+"
)
"""What torchrun and its like set: a program that names one may take its place in the job from it."""
_READERS = frozenset({"accelerate", "deepspeed", "horovod", "lightning", "mpi4py", "pytorch_lightning"})
"""Libraries that take it from there themselves."""
_JOINS = {"init_process_group": 4, "init_rpc": 3}
"""With so many positional arguments they are given a rank or a world size; with fewer they read the variables."""
_SWITCH = "--multiprocessing-distributed"
"""PyTorch's imagenet example, and the many programs made from it, spawn only where this is given."""
_NODES_AND_NODE = (
    (("--nodes", "--num-nodes", "--nnodes", "--num-machines"), ("--node-rank", "--machine-rank", "--nr")),
    (("--world-size",), ("--rank",)),
)
_URL, _ADDRESS, _PORT = ("--init-method", "--dist-url"), ("--master-addr",), ("--master-port",)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What one module, or several together, say of how they are started."""

    starts: bool = False
    """It calls torch.multiprocessing's `spawn` or `start_processes`."""
    joins: bool = False
    """It joins a process group, or RPC, with a rank or world size of its own."""
    joins_by_variables: bool = False
    """It joins one with what the variables say."""
    reads: bool = False
    """It names a variable that a launcher sets, or uses a library that reads them."""
    sets: frozenset[str] = frozenset()
    """The variables that it sets itself."""
    reads_port: bool = False
    options: frozenset[str] = frozenset()
    """The options that it declares."""
    synonyms: frozenset[tuple[str, ...]] = frozenset()
    """Of options that have several names, such as `-nr` and `--nr`, all of them."""

    def __or__(self, other: "Traits") -> "Traits":
        return Traits(**{each.name: getattr(self, each.name) | getattr(other, each.name) for each in fields(self)})

    @property
    def takes_place(self) -> bool:
        """Whether it may take its place in the job from variables that a launcher sets."""
        return self.reads or (self.joins_by_variables and "RANK" not in self.sets)


@dataclass(frozen=True, kw_only=True)
class SpawnStyle:
    """A script to be started once per node; options that it does not declare are empty."""

    rank: str = ""
    """The option that takes the node's number; there is none without `nodes`."""
    nodes: str = ""
    """The option that takes the number of nodes."""
    url: str = ""
    """The option that takes the address where all meet, as `tcp://host:port`."""
    address: str = ""
    port: str = ""
    starts: bool = False
    """Whether it was seen to start processes: then one for each GPU."""
    alone: bool = False
    """Whether nothing was found that tells it which node it is on."""
    synonyms: frozenset[tuple[str, ...]] = frozenset()
    """All names of those of these options that have several."""

    def names(self, option: str) -> frozenset[str]:
        """Return all names of one of its options."""
        return frozenset({option}).union(*(each for each in self.synonyms if option in each))


def find_spawn_style(
    near: Sequence[Traits], far: Sequence[Traits], arguments: Sequence[str], *, forced: bool
) -> SpawnStyle | None:
    """Return how a script starts its own processes; None if it does not, or if that can't be told.

    Args:
        near: traits of the script and of the modules in its own folder that it imports.
        far: those of modules in packages: they may be a library's, so what they could do tells nothing.
        forced: the user says that it does.
    """
    own, everything = _together(near), _together([*near, *far])
    style = _declared(everything)
    switch = {_SWITCH, _underscored(_SWITCH)} & everything.options
    if switch:
        found = bool(switch & set(arguments))
    else:
        own_port = "MASTER_PORT" in own.sets and not everything.reads_port
        by_hand = bool(style.rank) and style.nodes == _fitting(("--world-size",), everything.options)
        joins = everything.joins or (everything.joins_by_variables and "RANK" in everything.sets)
        found = joins and not everything.takes_place and (own.starts or by_hand or own_port)
    if not (found or forced):
        return None
    told = everything.takes_place or any(_fitting(rank, everything.options) for _, rank in _NODES_AND_NODE)
    return replace(style, starts=own.starts, alone=not told and found)


def _together(traits: Sequence[Traits]) -> Traits:
    whole = Traits()
    for each in traits:
        whole |= each
    return whole


def _declared(traits: Traits) -> SpawnStyle:
    options = traits.options
    pairs = ((_fitting(nodes, options), _fitting(rank, options)) for nodes, rank in _NODES_AND_NODE)
    nodes, rank = next((pair for pair in pairs if all(pair)), ("", ""))
    style = SpawnStyle(
        rank=rank,
        nodes=nodes,
        url=_fitting(_URL, options),
        address=_fitting(_ADDRESS, options),
        port=_fitting(_PORT, options),
    )
    own = {style.rank, style.nodes, style.url, style.address, style.port}
    return replace(style, synonyms=frozenset(each for each in traits.synonyms if own & set(each)))


def _fitting(names: Sequence[str], options: frozenset[str]) -> str:
    """Return the first of `names` that is declared, in the spelling that is."""
    spellings = (spelling for name in names for spelling in (name, _underscored(name)))
    return next((spelling for spelling in spellings if spelling in options), "")


def _underscored(option: str) -> str:
    return "--" + option[2:].replace("-", "_")


@dataclass
class _Look:
    """What is gathered on the way through a module's tree."""

    names: dict[str, str] = field(default_factory=dict)
    """By name in the module, the full name of what was imported."""
    calls: list[ast.Call] = field(default_factory=list)
    words: list[ast.Constant] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)
    """Names of variables that are set, by the id of the node of the tree that names them."""
    plain_keys: set[str] = field(default_factory=set)

    def full_name(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, as far as imports tell; empty for others."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])


def traits_of(module: ast.Module) -> Traits:
    """Return what a module says of how it is started."""
    look = _Look()
    for node in ast.walk(module):
        for name, whole in _imported(node):
            look.names[name] = whole
        if isinstance(node, ast.Call):
            look.calls.append(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            look.words.append(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_environ(node.value):
            _note_key(look, node.slice)
    for call in look.calls:
        _note_update(look, call)
    joins = [_joins_by_variables(call) for call in look.calls if _last_name(call.func) in _JOINS]
    read = {str(word.value) for word in look.words if id(word) not in look.keys}
    libraries = {whole.partition(".")[0] for whole in look.names.values()}
    return Traits(
        starts=any(_STARTS.fullmatch(look.full_name(call.func)) for call in look.calls),
        joins=not all(joins),
        joins_by_variables=any(joins),
        reads=any(map(_LAUNCHERS_VARIABLE.fullmatch, read)) or bool(libraries & _READERS),
        sets=frozenset({*look.keys.values(), *look.plain_keys}),
        reads_port="MASTER_PORT" in read,
        options=frozenset(_options(look.calls)),
        synonyms=frozenset(_synonyms(look.calls)),
    )


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import makes, each with the full name of what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (
                alias.asname or alias.name.partition(".")[0],
                alias.name if alias.asname else alias.name.partition(".")[0],
            )
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _is_environ(node: ast.expr) -> bool:
    return _last_name(node) == "environ"


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _note_key(look: _Look, key: ast.expr | None) -> None:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        look.keys[id(key)] = key.value


def _note_update(look: _Look, call: ast.Call) -> None:
    """Take in `os.environ.update(…)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "update" and _is_environ(call.func.value)):
        return
    look.plain_keys |= {keyword.arg for keyword in call.keywords if keyword.arg}
    for argument in call.args:
        for key in argument.keys if isinstance(argument, ast.Dict) else ():
            _note_key(look, key)


def _joins_by_variables(call: ast.Call) -> bool:
    named = {keyword.arg for keyword in call.keywords}
    return len(call.args) < _JOINS[_last_name(call.func)] and not named & {"rank", "world_size"}


def _options(calls: Sequence[ast.Call]) -> Iterator[str]:
    """Yield the options that are declared by `add_argument(…)`, `option(…)` and the like, and by absl's `DEFINE_…`."""
    for call in calls:
        words = _texts(call)
        if _last_name(call.func).startswith("DEFINE_"):
            yield from (f"--{word}" for word in words[:1])
        else:
            yield from (word for word in words if word.startswith("--"))


def _synonyms(calls: Sequence[ast.Call]) -> Iterator[tuple[str, ...]]:
    """Yield the names of each option that is declared with several, a long one among them."""
    for call in calls:
        words = tuple(word for word in _texts(call) if re.fullmatch(r"--?[^\W\d][\w-]*", word))
        if len(words) > 1 and any(word.startswith("--") for word in words):
            yield words


def _texts(call: ast.Call) -> list[str]:
    """Return the positional arguments of a call that are texts."""
    return [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
