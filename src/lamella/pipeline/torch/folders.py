"""Hugging Face folders that no model of the library is: read by transformers, exported by PyTorch."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import replace
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.optional import Foreign, need
from lamella.base.paths import shown
from lamella.bridge.hf_to_module import Folder, find_architecture, open_folder
from lamella.bridge.hf_to_module.checkpoint import whole
from lamella.bridge.hf_to_module.folder import CONFIG
from lamella.bridge.torch_to_graph.program import first_line, torch_errors
from lamella.graph.model import Model
from lamella.lang.module.rules.mappings import IGNORED
from lamella.pipeline.module.folders import PACKAGES
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents
from lamella.pipeline.torch.export import from_torch

BATCH, LENGTH, LATER = "B", "T", "U"
TOKENS, WORDS, SAMPLES = 6, 5, 16000
"""Extents of the arguments with which a module is exported: positions, those of a decoder, samples of sound."""


def load_through_torch(path: Path, options: Options, why: Diagnostic) -> Model:
    """The graph of a folder that transformers reads; no code of the folder is run, and nothing is unpickled.

    Where that fails too, both reasons are told.
    """
    try:
        model = _export(path, options)
    except LamellaError as problem:
        raise LamellaError([*problem.findings, why]) from None
    return replace(model, findings=(why, *model.findings))


def _export(path: Path, options: Options) -> Model:
    folder = open_folder(path, options.limits)
    module = _read_module(folder, options)
    given = _example(module)
    names = {name: _axes(name, value) for name, value in given.items()}
    fixed = _fixed(module)
    open_axes = {**names, **dict.fromkeys(fixed)}
    for traced in (_from_one, nullcontext):
        model = None
        with suppress(LamellaError), traced():
            model = from_torch(module, (), {**given, **fixed}, open_axes)
        if model is not None:
            return _told(with_extents(model, options), folder, module)
    # Some modules fix their extents while they are traced: those that are given, else the example's.
    return _told(from_torch(module, (), {**_sized(given, names, options), **fixed}), folder, module)


def _told(model: Model, folder: Folder, module: Foreign) -> Model:
    """The model with a note where it takes texts alone of what transformers gives images too."""
    if not _places_images(module.config):
        return model
    note = IGNORED.at(
        whole(folder.path / CONFIG),
        what="what it does with images",
        why="they take the places of tokens that a text has for them, so texts alone are exported",
    )
    return replace(model, findings=(*model.findings, note))


def _places_images(config: Foreign) -> bool:
    """Whether images stand for tokens of a text."""
    return any(getattr(config, name, None) is not None for name in ("image_token_id", "image_token_index"))


@contextmanager
def _from_one() -> Iterator[None]:
    """Open extents begin at 1: else PyTorch takes it that what was 2 in the example is never 1."""
    config = need("torch").fx.experimental._config
    before, config.backed_size_oblivious = config.backed_size_oblivious, True
    try:
        yield
    finally:
        config.backed_size_oblivious = before


def _read_module(folder: Folder, options: Options) -> Foreign:
    """The module with its weights in 32 bits; InputError where a tensor is missing or belongs to nothing."""
    torch, transformers = (need(name) for name in PACKAGES)
    names = find_architecture(folder.config)
    with _silence():
        try:
            # A class is loaded when it is asked for, with all that it needs.
            classes = (getattr(transformers, name, None) for name in names)
            loader = next(filter(None, classes), transformers.AutoModel)
            module, report = loader.from_pretrained(
                str(folder.path),
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
            )
        except _failures() as problem:
            raise InputError(
                f"transformers cannot read it: {first_line(problem)}", path=shown(folder.path)
            ) from None
    missing = sorted(report["missing_keys"])
    extra = [
        name for name in report["unexpected_keys"] if not any(fnmatch(name, item) for item in options.unused)
    ]
    for tensors, what in ((missing, "has no tensor"), (sorted(extra), "has a tensor that nothing reads:")):
        if tensors:
            more = f" and {len(tensors) - 1} more" if len(tensors) > 1 else ""
            hint = "" if tensors is missing else "--unused PATTERN lets it stay"
            raise InputError(
                f"the checkpoint {what} '{tensors[0]}'{more}", path=shown(folder.path), hint=hint
            )
    if getattr(module.config, "_experts_implementation", None) is not None:
        # The others multiply groups of rows whose sizes are known only at run time.
        module.config._experts_implementation = "batched_mm"
    for config in (module.config, getattr(module.config, "text_config", module.config)):
        if getattr(config, "use_cache", False):
            # Some modules give caches by what their configs say, and take no argument about it.
            config.use_cache = False
    return module.eval()


def _failures() -> tuple[type[Exception], ...]:
    """What transformers may raise where it cannot read a folder."""
    strict = need("huggingface_hub").errors.StrictDataclassError
    return (ImportError, KeyError, OSError, strict, *torch_errors())


@contextmanager
def _silence() -> Iterator[None]:
    """Keep transformers from printing tables and bars of progress."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(level)


def _example(module: Foreign) -> dict[str, Foreign]:
    """Arguments of two sequences, images or sounds, by the names that the module gives them."""
    torch, config = need("torch"), module.config
    taken = inspect.signature(module.forward).parameters
    main = {"input_ids", module.main_input_name}
    both = hasattr(config, "text_config") and hasattr(config, "vision_config") and not _places_images(config)
    wanted = [name for name in taken if name in main or (both and name == "pixel_values")]
    if config.is_encoder_decoder and "decoder_input_ids" in taken:
        wanted.append("decoder_input_ids")
    makers = {
        "pixel_values": lambda: torch.rand(2, *_image(config)),
        "input_values": lambda: torch.rand(2, *_sounds(config)),
        "input_features": lambda: torch.rand(2, config.num_mel_bins, 2 * config.max_source_positions),
        "decoder_input_ids": lambda: torch.ones((2, WORDS), dtype=torch.int64),
        "input_ids": lambda: torch.ones((2, TOKENS), dtype=torch.int64),
    }
    unknown = next((name for name in wanted if name not in makers), None)
    if unknown is not None or not wanted:
        hint = "export it with lamella.from_torch and arguments of your own"
        raise InputError(f"'{type(module).__name__}' takes '{unknown}', which has no known shape", hint=hint)
    return {name: makers[name]() for name in wanted}


def _sounds(config: Foreign) -> tuple[int, ...]:
    """Samples of a sound, or moments and bins of a spectrogram of known length."""
    bins, moments = (getattr(config, name, None) for name in ("num_mel_bins", "max_length"))
    return (moments, bins) if isinstance(bins, int) and isinstance(moments, int) else (SAMPLES,)


def _image(config: Foreign) -> tuple[int, ...]:
    """Channels, height and width of an image; of a film the number of its images first."""
    inner = getattr(config, "vision_config", config)
    size = getattr(inner, "image_size", 224)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = getattr(inner, "num_channels", 3), height, width
    frames = getattr(inner, "num_frames", None)
    return (frames, *shape) if isinstance(frames, int) else shape


def _axes(name: str, value: Foreign) -> dict[int, str]:
    """The extents that stay open: sequences, and their positions."""
    if name in ("pixel_values", "input_features", "input_values"):
        return {0: BATCH}
    return {0: BATCH, 1: LATER if name == "decoder_input_ids" else LENGTH}


def _sized(
    given: Mapping[str, Foreign], names: Mapping[str, Mapping[int, str]], options: Options
) -> dict[str, Foreign]:
    """The arguments in the extents that `--shape` names."""
    found = {}
    for name, value in given.items():
        sizes = [options.shape.get(names[name].get(axis, ""), size) for axis, size in enumerate(value.shape)]
        found[name] = value.new_ones(sizes)
    return found


def _fixed(module: Foreign) -> dict[str, object]:
    """Arguments that keep a module from giving caches."""
    taken = inspect.signature(module.forward).parameters
    return {name: value for name, value in {"use_cache": False, "return_dict": True}.items() if name in taken}
