"""What a folder of Hugging Face is made for: labels of a text, a sound or an image, a word, an answer, what is said.

A task is one row of `TASKS`: the endings of the architectures that do it, the option that gives its input, and the
module that does it. A new kind of input is an option of the step `task` (`pipeline/command_options.py`), whose name
stands in `GIVEN`, and rows with a module beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.optional import load_late
from lamella.base.paths import is_there, shown
from lamella.base.records import dataclass
from lamella.bridge.hf_to_module import find_architecture
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.bridge.hf_to_module.folder import CONFIG
from lamella.pipeline.effects import TASK_INPUTS
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.base.placement import OperationPlacement

SENTENCES = "modules.json"
"""The file in which sentence-transformers lists what makes a vector of a text."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task gave: one item for each input, as data and as lines."""

    items: tuple[object, ...]
    lines: tuple[str, ...]
    findings: tuple[Diagnostic, ...] = ()
    placement: tuple[OperationPlacement, ...] = ()


class Performs(Protocol):
    """A module that does tasks."""

    def perform(self, task: str, path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
        """Do a task of this module with a folder and the inputs that the options give."""


@dataclass(frozen=True, slots=True)
class Task:
    """One row of the table."""

    name: str
    given: str
    """The option that gives its input."""
    module: str
    endings: tuple[str, ...]
    """How the architectures end that do it."""


TOWERS = ("CLIPModel", "SiglipModel")
"""Models that take texts and images together."""
TASKS = (
    Task("sentence-embedding", "text", "text", (SENTENCES,)),
    Task("fill-mask", "text", "text", ("ForMaskedLM",)),
    Task("speech-to-text", "audio", "sounds", ("ForCTC",)),
    Task(
        "audio-classification",
        "audio",
        "sounds",
        ("Wav2Vec2ForSequenceClassification", "HubertForSequenceClassification"),
    ),
    Task("audio-feature-extraction", "audio", "sounds", ("Wav2Vec2Model", "HubertModel")),
    Task("text-classification", "text", "text", ("ForSequenceClassification",)),
    Task("token-classification", "text", "text", ("ForTokenClassification",)),
    Task("question-answering", "text", "text", ("ForQuestionAnswering",)),
    Task("speech-to-text", "audio", "speech", ("WhisperForConditionalGeneration",)),
    Task("image-segmentation", "image", "images", ("ForSemanticSegmentation",)),
    Task("image-classification", "image", "images", ("ForImageClassification", "WithTeacher")),
    Task(
        "image-feature-extraction",
        "image",
        "images",
        (
            "ViTModel",
            "DeiTModel",
            "Dinov2Model",
            "SegformerModel",
            "ResNetModel",
            "ConvNextModel",
            "VisionModel",
            "VisionModelWithProjection",
        ),
    ),
    Task("text-to-text", "text", "text", ("ForConditionalGeneration", "MTModel")),
    Task("feature-extraction", "text", "text", ("Model",)),
)
"""Tasks in the order in which they are tried; all of them by the words that Hugging Face has for them."""


def find_task(path: Path, config: Mapping[str, object], given: str) -> Task:
    """The task of a folder with an input; InputError says what it takes instead."""
    names = (SENTENCES,) if is_there(path / SENTENCES) else find_architecture(config)
    if any(name.endswith(TOWERS) for name in names):
        why = "its two towers compare texts with images, and a task here takes one of them"
        hint = "lamella run FOLDER --input token_ids=T.npy --input pixel_values=I.npy gives how near they are"
        raise InputError(f"no task is known for '{names[0][:80]}': {why}", path=shown(path), hint=hint)
    known = [task for task in TASKS if any(name.endswith(task.endings) for name in names)]
    for task in known[:1]:
        if task.given == given:
            return task
        raise InputError(
            f"{task.name} takes --{task.given}, not --{given}", path=shown(path), hint=f"say --{task.given} …"
        )
    called = ", ".join(name[:80] for name in names) or "a model without a name"
    hint = f"architectures whose names end with {', '.join(task.endings[0] for task in TASKS[1:])} have one"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        hint = "lamella generate FOLDER --prompt TEXT continues a text"
    raise InputError(f"no task is known for '{called}'", path=shown(path), hint=hint)


def perform(path: Path, options: Options) -> tuple[Task, TaskResult]:
    """Do what a folder is made for, with the texts or the files that the options give."""
    given = [name for name in TASK_INPUTS if getattr(options, name)]
    if len(given) != 1:
        raise InputError(f"a task takes one kind of input, not {' and '.join(f'--{name}' for name in given)}")
    config = read_object(path, CONFIG, options.limits)
    task = find_task(path, config, given[0])
    module = cast("Performs", load_late(f"lamella.pipeline.tasks.{task.module}"))
    return task, module.perform(task.name, path, config, options)


__all__ = ["TASKS", "Performs", "Task", "TaskResult", "find_task", "perform"]
