"""Makes a run's data set ready on every node and opens it as training and test pictures."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from trainer.config.run_config import Config
from trainer.data.batches.augment import Augmentation
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import EvaluationPictures, TrainingPictures
from trainer.data.batches.resident import Resident
from trainer.data.published import fetch, sharing, tensors
from trainer.data.streaming import image_folder
from trainer.data.streaming.decode import Pictures
from trainer.data.streaming.gpu_decode import gpu_decodes
from trainer.data.streaming.streamed import Choice, StreamedTest, StreamedTraining
from trainer.data.streaming.worker_process import start_server
from trainer.distributed import cores
from trainer.distributed.world import World, print_line
from trainer.errors import UserError

FEW_CORES = 8
"""With fewer for a GPU, `--decode auto` lets the GPU decode: so many decode what a resnet50 takes, some 3,000 pictures
a second. An estimate; not measured yet."""
Record = Callable[..., None]
"""Takes an event's name and its fields: `MetricsWriter.event`."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A data set in use."""

    train: TrainingPictures
    test: EvaluationPictures
    channels: int
    size: int
    """Height and width of a picture as the model sees it."""
    classes: int
    identity: str
    """What a checkpoint remembers it by."""


def open_data(
    config: Config, world: World, layout: torch.memory_format, record: Record = lambda *_, **__: None
) -> Opened:
    """The run's data set; a collective. Raises UserError(2) where it can't be had, or is not what it should be.

    `record`: told later how many workers were chosen, where pictures are streamed.
    """
    if config.dataset == "folder":
        return _streamed(config, world, layout, record)
    return _resident(config, world, layout)


def _streamed(config: Config, world: World, layout: torch.memory_format, record: Record) -> Opened:
    if config.workers != 0:
        start_server()  # first, for it takes seconds; this process goes on meanwhile
    assert config.own_copy is not None  # checked with the arguments
    found = _found(config.own_copy.absolute(), world)
    facts = world.gather(cores.facts())
    free = min(cores.share(facts, rank) for rank in range(world.world_size))
    raw = _gpu_decodes(config, world, free)
    shape = (3, config.image_size, config.image_size)
    normalize = Normalize(
        mean=image_folder.MEAN, std=image_folder.STD, shape=shape, device=world.device, memory_format=layout
    )
    pictures = Pictures(files=found.train, size=config.image_size, crop=config.crop, raw=raw)

    def chosen(choice: Choice) -> None:
        tried = ", ".join(f"{workers}: {rate:,.0f}" for workers, rate in sorted(choice.rates.items()))
        world.say(f"workers: {choice.workers} (images/s by number of workers tried: {tried})")
        record("workers", workers=choice.workers, images_per_s={str(k): round(v, 1) for k, v in choice.rates.items()})

    if config.workers is None:
        world.say(f"workers: {free} at first; other numbers are tried while training")
    train = StreamedTraining(
        pictures,
        normalize,
        augmentation=Augmentation(flip=config.flip, cutout=config.cutout),
        seed=config.seed,
        cores=free,
        workers=config.workers,
        agree=lambda value: max(world.gather(value)),
        say=print_line,
        chosen=chosen,
    )
    test = StreamedTest(replace(pictures, files=found.test), normalize, workers=lambda: train.workers, say=print_line)
    return Opened(
        train=train,
        test=test,
        channels=3,
        size=config.image_size,
        classes=len(found.classes),
        identity=found.identity(),
    )


def _found(root: Path, world: World) -> image_folder.ImageFolder:
    """The folder's files, the same on every rank; the first rank that sees a problem tells it, a collective."""
    found: image_folder.ImageFolder | None = None
    problem: UserError | None = None
    try:
        found = image_folder.find(root)
    except UserError as error:
        problem = error
    with world.patient_group() as group:
        digests = world.gather(found.digest() if found else None, group)
    if None in digests:
        if problem is not None and digests.index(None) == world.rank:
            raise problem
        raise SystemExit(2)
    with world.alike():
        image_folder.refuse_differing([digest for digest in digests if digest], root)
    assert found is not None
    return found


def _gpu_decodes(config: Config, world: World, free: int) -> bool:
    """Whether all ranks' GPUs are to decode; a collective. The two decoders' pixels differ by a little."""
    wanted = config.decode == "gpu" or (config.decode == "auto" and free < FEW_CORES)
    able = all(world.gather(wanted and gpu_decodes(world.device)))
    if config.decode == "gpu" and not able:
        with world.alike():
            raise UserError(
                "argument --decode: gpu needs a GPU on every rank, and a torchvision with nvJPEG; use cpu", exit_code=2
            )
    return able


def _resident(config: Config, world: World, layout: torch.memory_format) -> Opened:
    data = _fetched(config, world)
    size = data.train_images.shape[-1]
    if max(config.shift, config.cutout) > size:
        flag = "shift" if config.shift > size else "cutout"
        with world.alike():
            raise UserError(f"argument --{flag}: at most {size}, the pictures' edge in pixels", exit_code=2)
    augmentation = Augmentation(shift=config.shift, flip=config.flip, cutout=config.cutout)

    def pictures(images: Tensor, labels: Tensor, augmentation: Augmentation) -> Resident:
        return Resident(
            images,
            labels,
            mean=data.mean,
            std=data.std,
            device=world.device,
            memory_format=layout,
            augmentation=augmentation,
            seed=config.seed,
        )

    channels, size = data.train_images.shape[1:3]
    return Opened(
        train=pictures(data.train_images, data.train_labels, augmentation),
        test=pictures(data.test_images, data.test_labels, Augmentation()),
        channels=channels,
        size=size,
        classes=data.classes,
        identity=config.dataset,
    )


def _fetched(config: Config, world: World) -> tensors.Dataset:
    name, data_dir, own_copy = config.dataset, config.data_dir, config.own_copy
    if own_copy or name == "synthetic":
        other = config.other_data
        world.once_per_node(
            lambda: fetch.ensure(name, data_dir=data_dir, own_copy=own_copy, say=print_line, other_data=other)
        )
    else:
        sharing.bring_everywhere(name, data_dir=data_dir, world=world, say=print_line)
    return tensors.load(name, data_dir=data_dir, own_copy=own_copy, seed=config.seed, say=world.say)
