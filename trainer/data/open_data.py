"""Makes a run's data set ready on every node and opens it as training and test images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from trainer.config.sections import AugmentationConfig, DataConfig
from trainer.data.batches.augment import Augmentation
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import EvaluationImages, TrainingImages
from trainer.data.batches.resident import Resident
from trainer.data.published import fetch, sharing, tensors
from trainer.data.streaming import image_folder
from trainer.data.streaming.decode import ImageDataset
from trainer.data.streaming.gpu_decode import gpu_decodes
from trainer.data.streaming.streamed import Choice, StreamedTest, StreamedTraining
from trainer.data.streaming.worker_process import start_server
from trainer.distributed import cores
from trainer.distributed.world import World, print_line
from trainer.errors import UserError

FEW_CORES = 8
"""With fewer cores for a GPU, `--decode auto` lets the GPU decode: this many decode what a resnet50 consumes, some
3,000 images a second. An estimate; not measured yet."""
Record = Callable[..., None]
"""Takes an event's name and its fields: `MetricsWriter.event`."""


@dataclass(frozen=True, kw_only=True)
class OpenedData:
    """A data set in use."""

    train: TrainingImages
    test: EvaluationImages
    channels: int
    size: int
    """Height and width of an image as the model sees it."""
    classes: int
    identity: str
    """How a checkpoint identifies it."""


def open_data(
    config: DataConfig,
    augmentation: AugmentationConfig,
    world: World,
    layout: torch.memory_format,
    *,
    seed: int,
    record: Record = lambda *_, **__: None,
) -> OpenedData:
    """Return the run's data set; a collective.

    `record` receives the number of workers chosen, once it is known, if images are streamed.

    Raises:
        UserError: exit code 2, if the data set can't be had or is not what it should be.
        SystemExit: with the code of the UserError that another rank raises.
    """
    augment = Augmentation(shift=augmentation.shift, flip=augmentation.flip, cutout=augmentation.cutout)
    if config.dataset == "folder":
        return _streamed(config, augment, world, layout, seed, record)
    return _resident(config, augment, world, layout, seed)


def _streamed(
    config: DataConfig,
    augmentation: Augmentation,
    world: World,
    layout: torch.memory_format,
    seed: int,
    record: Record,
) -> OpenedData:
    if config.workers != 0:
        start_server()  # first, because it takes seconds; this process goes on meanwhile
    assert config.own_copy is not None  # checked with the arguments
    folder = _agreed_folder(config.own_copy.absolute(), world)
    facts = world.gather(cores.facts())
    free = min(cores.share(facts, rank) for rank in range(world.world_size))
    raw = _all_gpus_decode(config.decode, world, free)
    shape = (3, config.image_size, config.image_size)
    normalize = Normalize(
        mean=image_folder.MEAN, std=image_folder.STD, shape=shape, device=world.device, memory_format=layout
    )
    dataset = ImageDataset(files=folder.train, size=config.image_size, crop=config.crop, raw=raw)

    def report(choice: Choice) -> None:
        tried = ", ".join(f"{workers}: {rate:,.0f}" for workers, rate in sorted(choice.rates.items()))
        world.say(f"workers: {choice.workers} (images/s by number of workers tried: {tried})")
        record("workers", workers=choice.workers, images_per_s={str(k): round(v, 1) for k, v in choice.rates.items()})

    if config.workers is None:
        world.say(f"workers: {free} at first; other numbers are tried while training")
    train = StreamedTraining(
        dataset,
        normalize,
        augmentation=augmentation,
        seed=seed,
        cores=free,
        workers=config.workers,
        agree=lambda value: max(world.gather(value)),
        say=print_line,
        report=report,
    )
    test = StreamedTest(replace(dataset, files=folder.test), normalize, workers=lambda: train.workers, say=print_line)
    return OpenedData(
        train=train,
        test=test,
        channels=3,
        size=config.image_size,
        classes=len(folder.classes),
        identity=folder.identity(),
    )


def _agreed_folder(root: Path, world: World) -> image_folder.ImageFolder:
    """Return the folder's files, the same on every rank; a collective. The first rank with a problem reports it."""
    folder: image_folder.ImageFolder | None = None
    problem: UserError | None = None
    try:
        folder = image_folder.find(root)
    except UserError as error:
        problem = error
    with world.patient_group() as group:
        digests = world.gather(folder.digest() if folder else None, group)
    if None in digests:
        if problem is not None and digests.index(None) == world.rank:
            raise problem
        raise SystemExit(2)
    with world.alike():
        image_folder.refuse_differing([digest for digest in digests if digest], root)
    assert folder is not None
    return folder


def _all_gpus_decode(decode: str, world: World, free: int) -> bool:
    """Return whether all ranks' GPUs will decode; a collective. The two decoders' pixels differ by a little."""
    wanted = decode == "gpu" or (decode == "auto" and free < FEW_CORES)
    able = all(world.gather(wanted and gpu_decodes(world.device)))
    if decode == "gpu" and not able:
        with world.alike():
            raise UserError(
                "argument --decode: gpu needs a GPU on every rank, and a torchvision with nvJPEG; use cpu", exit_code=2
            )
    return able


def _resident(
    config: DataConfig, augmentation: Augmentation, world: World, layout: torch.memory_format, seed: int
) -> OpenedData:
    data = _fetched(config, world, seed)
    channels, size = data.train_images.shape[1:3]
    if max(augmentation.shift, augmentation.cutout) > size:
        flag = "shift" if augmentation.shift > size else "cutout"
        with world.alike():
            raise UserError(f"argument --{flag}: at most {size}, the images' edge in pixels", exit_code=2)

    def resident(images: Tensor, labels: Tensor, augmentation: Augmentation) -> Resident:
        return Resident(
            images,
            labels,
            mean=data.mean,
            std=data.std,
            device=world.device,
            memory_format=layout,
            augmentation=augmentation,
            seed=seed,
        )

    return OpenedData(
        train=resident(data.train_images, data.train_labels, augmentation),
        test=resident(data.test_images, data.test_labels, Augmentation()),
        channels=channels,
        size=size,
        classes=data.classes,
        identity=config.dataset,
    )


def _fetched(config: DataConfig, world: World, seed: int) -> tensors.Dataset:
    name, data_dir, own_copy = config.dataset, config.data_dir, config.own_copy
    if own_copy or name == "synthetic":
        other = config.other_data
        world.once_per_node(
            lambda: fetch.ensure(name, data_dir=data_dir, own_copy=own_copy, say=print_line, other_data=other)
        )
    else:
        sharing.bring_everywhere(name, data_dir=data_dir, world=world, say=print_line)
    return tensors.load(name, data_dir=data_dir, own_copy=own_copy, seed=seed, say=world.say)
