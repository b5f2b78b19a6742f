"""Tasks of images: each file becomes pixels as `preprocessor_config.json` says, and is run by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import Foreign, need
from lamella.base.paths import is_there, read_bytes, shown
from lamella.base.placement import OperationPlacement, placement_of
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.backends import make_executable
from lamella.pipeline.languages import Executable
from lamella.pipeline.module.execution import load
from lamella.pipeline.module.folders import read_source, reason_for_torch
from lamella.pipeline.options import Options
from lamella.pipeline.tasks import TaskResult
from lamella.pipeline.tasks.text import few, label_scores, labels_of, ranked

PREPROCESSOR = "preprocessor_config.json"
PIXELS = "pixel_values"
BILINEAR, BICUBIC, FILTERS = 2, 3, range(6)
"""Numbers of filters, which Pillow and the config share."""
SMOOTH = ("ViT", "Segformer")
"""Processors that take the four nearest pixels unless they are told otherwise."""
SHRUNK, WHOLE = "ConvNext", 384
"""Processors whose size is that of what is cut out of the middle, and the size from which on nothing is cut."""
SHORTEST = ("CLIP", "Bit")
"""Processors that take a size of one number for that of the shorter side, not of both."""
LARGEST = 1 << 14


class Seeing(NamedTuple):
    """What is done with an image, in this order: resized, cut out of its middle, scaled, and normalised."""

    size: tuple[int, int] | int | None = None
    """Height and width, or how long the shorter side is."""
    resample: int = BICUBIC
    crop: tuple[int, int] | None = None
    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def perform(task: str, path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """Do a task with each of the images."""
    seeing = read_seeing(path, options.limits)
    model = ImageModel(path, options)
    items, lines = [], []
    for name in options.image:
        picture = read_picture(Path(name), seeing, options.limits)
        item, rows = _PERFORMERS[task](
            next(iter(model.run(picture.pixels).values()))[0], picture, config, options
        )
        items.append(item)
        lines += rows if len(options.image) == 1 else [f"{name}:", *(f"  {row}" for row in rows)]
    return TaskResult(tuple(items), tuple(lines), model.findings, model.placement)


class ImageModel:
    """A folder that is ready to be given pixels; models whose positions can be stretched take all sizes."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options
        self.findings: tuple[Diagnostic, ...] = ()
        self.placement: tuple[OperationPlacement, ...] = ()
        self._compiled: dict[tuple[int, ...], Executable] = {}

    def run(self, pixels: Array) -> dict[str, Array]:
        """What the model gives for one image."""
        size = pixels.shape[2:]
        if size not in self._compiled:
            self._compiled[size] = self._compile(pixels)
        executable = self._compiled[size]
        found = executable(**{PIXELS: pixels})
        self.placement = tuple(placement_of(executable))
        return found

    def _compile(self, pixels: Array) -> Executable:
        model = load(self._path, self._options)
        if not _fits(model, pixels) and self._stretches():
            height, width = pixels.shape[2:]
            values = {**self._options.config, "height": height, "width": width}
            model = load(self._path, replace(self._options, config=values))
        self.findings = model.findings
        executable = make_executable(model, self._options.backend, self._options)
        if executable.inputs != (PIXELS,):
            what = ", ".join(executable.inputs)
            raise InputError(f"the model takes {what}, no image alone", path=shown(self._path))
        _require_size(self._path, pixels, _shape_of(model))
        return executable

    def _stretches(self) -> bool:
        """Whether the model has positions for images of other sizes, and nothing else was asked for."""
        if reason_for_torch(self._path, self._options) is not None or "height" in self._options.config:
            return False
        return {"height", "width"} <= read_source(self._path, self._options).instance.values.keys()


def _shape_of(model: Model) -> tuple[object, ...]:
    return next((item.shape for item in model.graph.inputs if isinstance(item, Tensor)), ())


def _fits(model: Model, pixels: Array) -> bool:
    sizes = zip(_shape_of(model), pixels.shape, strict=False)
    return all(not isinstance(size, int) or size == found for size, found in sizes)


def _require_size(path: Path, pixels: Array, taken: tuple[object, ...]) -> None:
    """Refuse images of another size than the model takes; extents that are open take all."""
    wanted = [
        size if isinstance(size, int) else found for size, found in zip(taken, pixels.shape, strict=True)
    ]
    if wanted[1:] != list(pixels.shape[1:]):
        (_, channels, height, width), (_, *others) = wanted, pixels.shape
        raise InputError(
            f"{PREPROCESSOR} makes images of {'×'.join(map(str, others))}, the model takes {channels}×{height}×{width}",
            path=shown(path),
            hint=f"let its size or crop_size be {height}×{width}",
        )


def _classify(
    logits: Array, picture: Picture, config: Mapping[str, object], options: Options
) -> tuple[object, list[str]]:
    """The labels of an image, each with its score, the highest first."""
    scores = label_scores(logits, config)
    names = labels_of(config, len(scores))
    found = [{"label": names[place], "score": float(scores[place])} for place in ranked(scores, options.top)]
    return found, [f"{item['label']}  {item['score']:.4f}" for item in found]


def _extract(
    states: Array, picture: Picture, config: Mapping[str, object], options: Options
) -> tuple[object, list[str]]:
    """The vectors of the patches of an image, or the one that a projection makes of it."""
    rows = np.atleast_2d(states) if states.ndim < 3 else states.reshape(len(states), -1).T
    return states.tolist(), [f"{len(row)} numbers: {few(row)}" for row in rows]


def _segment(
    logits: Array, picture: Picture, config: Mapping[str, object], options: Options
) -> tuple[object, list[str]]:
    """The label of each pixel of an image as it was read, and how much of the image each label has."""
    numbers = stretch(logits, picture.height, picture.width).argmax(0)
    names = labels_of(config, len(logits))
    counts = np.bincount(numbers.reshape(-1), minlength=len(names))
    places = [place for place in ranked(counts, options.top) if counts[place]]
    found = [{"label": names[place], "number": place, "pixels": int(counts[place])} for place in places]
    lines = [f"{names[place]}  {counts[place] / numbers.size:.4f}" for place in places]
    return {"size": list(numbers.shape), "labels": found, "map": numbers.tolist()}, lines


def stretch(scores: Array, height: int, width: int) -> Array:
    """Scores of pixels for an image of another size, each between the four nearest ones."""
    rows, columns = (
        _between(size, extent) for size, extent in zip((height, width), scores.shape[1:], strict=True)
    )
    found: Array = rows @ scores @ columns.T
    return found


def _between(size: int, extent: int) -> Array:
    """How much each of `extent` pixels adds to each of `size`, by the distance of their middles."""
    places = np.maximum((np.arange(size) + 0.5) * extent / size - 0.5, 0)
    below = np.minimum(places.astype(np.int64), extent - 1)
    found = np.zeros((size, extent), np.float32)
    part = (places - below).astype(np.float32)
    np.add.at(found, (np.arange(size), below), 1 - part)
    np.add.at(found, (np.arange(size), np.minimum(below + 1, extent - 1)), part)
    return found


_PERFORMERS = {
    "image-classification": _classify,
    "image-feature-extraction": _extract,
    "image-segmentation": _segment,
}


# --- pixels ---------------------------------------------------------------------------------------------------------


class Picture(NamedTuple):
    """The pixels of a file as a model takes them, `[1, 3, height, width]`, and the size that it had."""

    pixels: Array
    height: int
    width: int


def read_picture(file: Path, seeing: Seeing, limits: Limits = DEFAULT) -> Picture:
    """The pixels of a file as a model takes them; InputError says what is wrong with it."""
    parser = need("PIL.ImageFile").Parser()
    data = read_bytes(file, limits)
    try:
        parser.feed(data)
        image = parser.close().convert("RGB")
    except (OSError, ValueError, SyntaxError, need("PIL.Image").DecompressionBombError) as problem:
        what = f"'{shown(file)}' is no image that can be read: {str(problem)[:120]}"
        raise InputError(what, path=shown(file)) from problem
    cut = _cut(_resized(image, seeing), seeing, file)
    scaled = np.asarray(cut, np.float64) * seeing.factor
    normal = (scaled - np.asarray(seeing.mean)) / np.asarray(seeing.std)
    pixels = np.ascontiguousarray(normal.astype(np.float32).transpose(2, 0, 1)[None])
    return Picture(pixels, image.height, image.width)


def _resized(image: Foreign, seeing: Seeing) -> Foreign:
    if seeing.size is None:
        return image
    if isinstance(seeing.size, int):
        short = min(image.size)
        width, height = (
            seeing.size if side == short else int(seeing.size * side / short) for side in image.size
        )
    else:
        height, width = seeing.size
    return image.resize((width, height), resample=seeing.resample)


def _cut(image: Foreign, seeing: Seeing, file: Path) -> Foreign:
    if seeing.crop is None:
        return image
    (width, height), (high, wide) = image.size, seeing.crop
    if high > height or wide > width:
        what = f"a middle of {high}×{wide} cannot be cut out of {height}×{width}"
        raise InputError(f"{what}, which {PREPROCESSOR} makes of '{shown(file)}'", path=shown(file))
    left, top = (width - wide) // 2, (height - high) // 2
    return image.crop((left, top, left + wide, top + high))


# --- what a folder says ---------------------------------------------------------------------------------------------


def read_seeing(path: Path, limits: Limits = DEFAULT) -> Seeing:
    """What a folder says is done with images; InputError names what is not."""
    if not is_there(path / PREPROCESSOR):
        hint = f"the folder of the model on the hub has {PREPROCESSOR}"
        raise InputError(f"the folder does not say how images become pixels: no {PREPROCESSOR}", hint=hint)
    said = read_object(path, PREPROCESSOR, limits)
    kind = str(said.get("image_processor_type", said.get("feature_extractor_type", "")))
    if kind.startswith(SHRUNK) and said.get("do_resize", True):
        said = {**said, **_shrunk(path, said)}
    # What is done with labels (do_reduce_labels) speaks of training.
    for key in ("do_pad", "do_thumbnail", *(() if kind.startswith(SHRUNK) else ("crop_pct",))):
        if said.get(key):
            raise InputError(f"'{key}' of {PREPROCESSOR} is not done here", path=shown(path))
    resample = said.get("resample", BILINEAR if kind.startswith(SMOOTH) else BICUBIC)
    factor = said.get("rescale_factor", 1 / 255)
    if not isinstance(resample, int) or resample not in FILTERS or not isinstance(factor, int | float):
        raise InputError(f"'resample' or 'rescale_factor' of {PREPROCESSOR} is none", path=shown(path))
    cropped = said.get("do_center_crop", "crop_size" in said)
    crop = _size(path, said, "crop_size", False) if cropped else None
    normalised = said.get("do_normalize", True)
    return Seeing(
        _size(path, said, "size", kind.startswith(SHORTEST)) if said.get("do_resize", True) else None,
        resample,
        (crop, crop) if isinstance(crop, int) else crop,
        float(factor) if said.get("do_rescale", True) else 1.0,
        _channels(path, said, "image_mean") if normalised else (0.0,),
        _channels(path, said, "image_std") if normalised else (1.0,),
    )


def _shrunk(path: Path, said: Mapping[str, object]) -> dict[str, object]:
    """The size and the crop of processors that cut a small image out of one that is larger by a share."""
    found, share = _size(path, said, "size", True), said.get("crop_pct", 224 / 256)
    if not isinstance(found, int) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"'size' or 'crop_pct' of {PREPROCESSOR} is none", path=shown(path))
    square = {"height": found, "width": found}
    if found >= WHOLE:
        return {"size": square, "do_center_crop": False}
    return {"size": {"shortest_edge": int(found / share)}, "crop_size": square, "do_center_crop": True}


def _size(path: Path, said: Mapping[str, object], key: str, shortest: bool) -> tuple[int, int] | int:
    """A height and a width, or the length of the shorter side."""
    found = said.get(key)
    if isinstance(found, int) and not shortest:
        found = {"height": found, "width": found}
    elif isinstance(found, int):
        found = {"shortest_edge": found}
    sizes = (
        {name: size for name, size in found.items() if size is not None} if isinstance(found, dict) else {}
    )
    if all(isinstance(size, int) and 0 < size < LARGEST for size in sizes.values()):
        if sizes.keys() == {"height", "width"}:
            return sizes["height"], sizes["width"]
        if sizes.keys() == {"shortest_edge"} and key == "size":
            return int(sizes["shortest_edge"])
    hint = "a height and a width, or a shortest_edge of size"
    raise InputError(f"'{key}' of {PREPROCESSOR} is no size that is known", path=shown(path), hint=hint)


def _channels(path: Path, said: Mapping[str, object], key: str) -> tuple[float, ...]:
    found = said.get(key)
    numbers = found if isinstance(found, list) else [found] * 3
    known = tuple(float(item) for item in numbers if isinstance(item, int | float))
    if len(numbers) != 3 or len(known) != 3:
        raise InputError(
            f"'{key}' of {PREPROCESSOR} is not one number for each of 3 channels", path=shown(path)
        )
    if key == "image_std" and not all(known):
        raise InputError(f"'{key}' of {PREPROCESSOR} divides by 0", path=shown(path))
    return known
