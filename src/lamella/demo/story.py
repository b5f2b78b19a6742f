"""The stages of the demonstration: each makes files, runs them on images that nobody learnt from, and is compared.

Nothing is shipped but the architecture and the images: every number is computed by the run that tells it.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lamella.backend.progress import Progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.paths import is_there, read_text, shipped
from lamella.base.writer import make_folder, write_text
from lamella.demo import MARK, DemoStage
from lamella.demo.race import ROUNDS, Race, hold_race
from lamella.graph.model import Model
from lamella.pipeline import api, check
from lamella.pipeline.arrays import read_arrays
from lamella.pipeline.convert import convert
from lamella.pipeline.given import options_of
from lamella.pipeline.languages import REGISTRY, Executable
from lamella.pipeline.nem.lowering import LoweredPlan
from lamella.pipeline.nem.program import plan_of
from lamella.pipeline.nem.stages import write_into
from lamella.pipeline.quantize.api import load_graph, quantize_graph
from lamella.plan.timing import TimingReport, simulate
from lamella.studio import plan_page
from lamella.train.fit import Fit

DEVICE = "npm_lite"
LEARNT = 1198
"""Images that are learnt from; the others are what accuracy is measured on."""
STEPS, BATCH, RATE = 740, 32, 0.01
QUICK = 60
"""Images that are read where it must be quick."""
SOURCES = ("digits.module", "digits_layers.sknd")


class Story:
    """The stages in order; what a later one needs of an earlier one is kept here."""

    def __init__(self, folder: Path, progress: Progress, quick: bool = False) -> None:
        self.folder = folder
        self.losses: list[float] = []
        self.race: Race | None = None
        self.timing: TimingReport | None = None
        self._progress = progress
        self._steps, rest = (STEPS // 10, QUICK) if quick else (STEPS, None)
        self._rounds = 1 if quick else ROUNDS
        arrays = read_arrays(shipped("demo/digits") / "digits.npz")
        self._known, images = np.split(arrays["image"].astype(np.float32), [LEARNT])
        self._known_labels, labels = np.split(arrays["label"], [LEARNT])
        self.images, self.labels = images[:rest], labels[:rest]
        self.read: Array = np.zeros(0, np.int64)
        """What the simulated NPU takes the images for."""
        self._scores: Array = np.zeros(0, np.float32)
        """Those of the stage above."""

    def stages(self) -> Iterator[DemoStage]:
        """Run the stages one after the other."""
        self._prepare()
        makers: Sequence[Callable[[], DemoStage]] = (
            self._architecture,
            self._training,
            self._formats,
            self._machine_code,
            self._integers,
            self._npu,
        )
        for make in makers:
            start = time.perf_counter()
            stage = make()
            seconds = time.perf_counter() - start
            yield replace(stage, seconds=seconds)

    # --- the stages -----------------------------------------------------------------------------------------

    def _architecture(self) -> DemoStage:
        path = self.folder / SOURCES[0]
        found = errors(check.check(path))
        if found:
            raise LamellaError(found)
        model = self._graph(path)
        count = sum(math.prod(_sizes(item.shape)) for item in model.graph.variables)
        text = read_text(path)
        words = f"{len(text.splitlines())} lines, {count:,} parameters, checked; gradients are derived from formulas"
        facts = {"parameters": count, "lines": len(text.splitlines())}
        return DemoStage(
            "architecture",
            "Module DSL",
            words,
            facts=facts,
            files=SOURCES,
            excerpt=text[text.index("model ") :],
        )

    def _training(self) -> DemoStage:
        words: dict[str, object] = {"batch": BATCH, "steps": self._steps, "shuffle": True, "lr": RATE}
        options = options_of({**words, "schedule": "cosine", "seed": 0}, by_command=True)
        fit = Fit(
            self.folder / SOURCES[0],
            options,
            {"image": self._known, "label": self._known_labels.astype(np.int64)},
        )
        for _ in self._progress(fit.run(), self._steps):
            pass
        self.losses = list(fit.loop.losses)
        fit.save(self.folder / "hf")
        run = self._compile("hf", backend="reference")
        self._scores = run(self.images)["scores"]
        loss = f"loss {self.losses[0]:.2f} → {self.losses[-1]:.4f}"
        return DemoStage(
            "training",
            "Hugging Face",
            f"{self._steps} steps of AdamW on {len(self._known):,} images; {loss}; saved as safetensors",
            self._accuracy(self._scores),
            facts={"steps": self._steps, "first_loss": self.losses[0], "last_loss": self.losses[-1]},
            files=("hf/",),
            excerpt=read_text(self.folder / "hf" / "config.json"),
        )

    def _formats(self) -> DemoStage:
        options = options_of({}, by_command=True)
        scores, worst = self._scores, 0.0
        names = ("digits.sknd", "digits.nac", "digits.onnx")
        for name in self._progress(names, len(names)):
            convert(self.folder / "hf", self.folder / name, options)
            scores = self._compile(name, backend=None)(self.images)["scores"]
            worst = max(worst, float(np.abs(scores - self._scores).max()))
        sizes = {name: (self.folder / name).stat().st_size for name in names}
        return DemoStage(
            "formats",
            "SkriptND, NAC, ONNX",
            ", ".join(f"{name} {size:,} B" for name, size in sizes.items()),
            self._accuracy(scores),
            f"largest difference of all three {worst:.1e}",
            {"bytes": sizes, "largest_difference": worst},
            names,
            read_text(self.folder / "digits.sknd"),
        )

    def _machine_code(self) -> DemoStage:
        scores = self._compile("hf", backend="cpu")(self.images)["scores"]
        apart = float(np.abs(scores - self._scores).max())
        self.race = hold_race(self.folder / "digits.onnx", self.images, self._rounds, self._progress)
        kernels = api.lower_model(
            self.folder / "hf", "tensor", options_of({"shape": {"B": 1}}, by_command=True)
        )
        return DemoStage(
            "machine code",
            "tensor language, LLVM",
            self.race.sentence(),
            self._accuracy(scores),
            f"largest difference from the formulas {apart:.1e}",
            {"largest_difference": apart, "race": self.race.to_json()},
            excerpt=_head(REGISTRY[kernels.language].text(kernels) or "", 60),
        )

    def _integers(self) -> DemoStage:
        options = options_of({"shape": {"B": 1}, "random": True}, by_command=False)
        model = load_graph(self.folder / "hf", options)
        found = quantize_graph(model, options, {"image": self._known}, self._progress)
        found.save(self.folder / "int8.sknd")
        scores = self._each(self._compile("int8.sknd", backend="reference"))
        same = float((scores.argmax(1) == self._scores.argmax(1)).mean())
        report, self._scores = found.report, scores
        part = report.bytes_after / report.bytes_before
        return DemoStage(
            "integers",
            "SkriptND on codes",
            f"weights and activations in 8 bits: {report.bytes_before:,} B become {report.bytes_after:,} ({part:.0%})",
            self._accuracy(scores),
            f"relative error {report.error:.2%}; {same:.1%} of the images are read the same",
            {"bytes_before": report.bytes_before, "bytes_after": report.bytes_after, "error": report.error},
            ("int8.sknd", "int8.safetensors"),
            read_text(self.folder / "int8.sknd"),
        )

    def _npu(self) -> DemoStage:
        options = options_of({"device": DEVICE})
        lowered = api.lower_model(self.folder / "int8.sknd", "nem", options)
        if not isinstance(lowered, LoweredPlan):
            raise InputError("the graph has no plan")
        path = write_into(lowered, self.folder / "npu", "digits")
        plan = plan_of(lowered.final.program)
        self.timing = simulate(plan)
        write_text(self.folder / "timeline.html", plan_page(self.timing, plan))
        scores = self._each(self._compile("npu/digits.nem", backend=None))
        apart = float(np.abs(scores - self._scores).max())
        self.read = scores.argmax(1)
        busiest = max(self.timing.units, key=lambda item: item.utilisation)
        words = f"{self.timing.cycles:,} cycles on {DEVICE}, {self.timing.ratio:.2f} × its bound"
        busy = f"{busiest.name(self.timing.engines)} busy {busiest.utilisation:.0%}"
        units = {item.name(self.timing.engines): item.utilisation for item in self.timing.units}
        return DemoStage(
            "NPU",
            "NEM",
            f"{words}; {busy}",
            self._accuracy(scores),
            "equal bit by bit" if apart == 0 else f"largest difference {apart:.1e}",
            {
                "cycles": self.timing.cycles,
                "ratio": self.timing.ratio,
                "units": units,
                "largest_difference": apart,
            },
            ("npu/digits.nem", "timeline.html"),
            _head(read_text(path), 60),
        )

    # --- what the stages share ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """A folder with the sources; what an earlier demonstration left is replaced, anything else is not."""
        if is_there(self.folder) and not is_there(self.folder / MARK) and any(self.folder.iterdir()):
            hint = "name another folder, or one that an earlier demo has written"
            raise InputError(f"the folder '{self.folder}' holds something else", hint=hint)
        for name in ("hf", "npu"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        make_folder(self.folder)
        write_text(self.folder / MARK, "")
        for name in SOURCES:
            write_text(self.folder / name, read_text(shipped("demo/digits") / name, DEFAULT))

    def _graph(self, path: Path) -> Model:
        found = api.read(path, options_of({}))
        assert isinstance(found, Model)  # a .module file is a graph
        return found

    def _compile(self, name: str, backend: str | None) -> Executable:
        return api.make_executable(self.folder / name, backend, options_of({}))

    def _each(self, run: Executable) -> Array:
        """The scores of a model that takes one image in each call."""
        count = len(self.images)
        return np.concatenate([run(image[None])["scores"] for image in self._progress(self.images, count)])

    def _accuracy(self, scores: Array) -> float:
        return float((scores.argmax(1) == self.labels).mean())


def _sizes(shape: Sequence[object]) -> list[int]:
    return [size for size in shape if isinstance(size, int)]


def _head(text: str, lines: int) -> str:
    """The first lines of a text."""
    found = text.splitlines()
    return "\n".join(found[:lines] + (["…"] if len(found) > lines else []))
