"""What is installed and what runs here, for `lamella doctor`: packages, extras, backends, the processor, caches."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from dataclasses import asdict

from lamella.backend.cpu.host import host_target, processor
from lamella.backend.cpu.jit import open_cache
from lamella.backend.cpu.run.pool import count_threads
from lamella.backend.cuda import cublaslt, driver
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.limits import MIB
from lamella.base.optional import EXTRAS
from lamella.base.paths import shipped
from lamella.base.records import dataclass
from lamella.pipeline import backends

OURS = "lamella"
OBJECTS = "machine code"
CORE = ("numpy", "ml_dtypes", "llvmlite", "click", "rich")
"""The packages that every installation has."""
DISTRIBUTIONS = {"Bio": "biopython", "cuda": "cuda-bindings", "PIL": "pillow"}
"""Packages that are imported by another name than they are installed by."""
FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vnni",
    "avx512bf16",
    "avx512fp16",
    "amx-tile",
    "amx-bf16",
    "amx-int8",
    "neon",
    "dotprod",
    "i8mm",
    "bf16",
    "sve",
)
"""Features of processors that decide which instructions kernels are made of."""
VARIABLES = ("LAMELLA_THREADS", "LAMELLA_CACHE", "XDG_CACHE_HOME", "NO_COLOR", "FORCE_COLOR")
"""Variables of the environment that change what we do."""


@dataclass(frozen=True, slots=True)
class PackageState:
    """A package of others: its version, empty where it is not installed."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else f"{self.name} is missing"


@dataclass(frozen=True, slots=True)
class ExtraState:
    """An extra of ours, and the packages that it brings."""

    name: str
    packages: tuple[PackageState, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all its packages are there."""
        return all(item.version for item in self.packages)

    @property
    def command(self) -> str:
        """What installs it."""
        return f"pip install '{OURS}[{self.name}]'"


@dataclass(frozen=True, slots=True)
class BackendState:
    """A backend, what it does, and why it cannot run here."""

    name: str
    title: str
    missing: str | None


@dataclass(frozen=True, slots=True)
class ProcessorState:
    """The processor of this machine, as kernels see it."""

    name: str
    count: int
    threads: int
    """Threads that kernels run on where nobody asks for another number."""
    target: str
    """What kernels are compiled for; empty where LLVM does not load."""
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CacheState:
    """A folder of what was computed before."""

    what: str
    folder: str
    """Empty where there is none."""
    files: int
    size: int
    largest: int


@dataclass(frozen=True, slots=True)
class Examination:
    """All that `lamella doctor` tells."""

    place: str
    processor: ProcessorState
    gpu: str
    """The GPU, or why there is none."""
    core: tuple[PackageState, ...]
    extras: tuple[ExtraState, ...]
    backends: tuple[BackendState, ...]
    caches: tuple[CacheState, ...]
    variables: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    """What is wrong with the installation."""

    def to_json(self) -> dict[str, object]:
        """All of it as data."""
        return {
            "place": self.place,
            "processor": asdict(self.processor),
            "gpu": self.gpu,
            "core": {item.name: item.version or None for item in self.core},
            "extras": {
                item.name: {
                    "complete": item.is_complete,
                    "command": item.command,
                    "packages": {one.name: one.version or None for one in item.packages},
                }
                for item in self.extras
            },
            "backends": {
                item.name: {"runs": item.missing is None, "missing": item.missing} for item in self.backends
            },
            "caches": [asdict(item) for item in self.caches],
            "variables": dict(self.variables),
            "findings": list(self.findings),
        }

    def lines(self) -> Iterator[str]:
        """All of it as a person reads it."""
        yield f"  {self.place}"
        yield from ("", "machine", *self._machine())
        yield from ("", "backends")
        for item in self.backends:
            state = f"runs     {item.title}" if item.missing is None else f"missing  {item.missing}"
            yield f"  {item.name:12} {state}"
        yield from ("", "packages", f"  {', '.join(map(str, self.core))}")
        yield from ("", "extras")
        for extra in self.extras:
            state = ", ".join(map(str, extra.packages))
            yield f"  {extra.name:12} {state}{'' if extra.is_complete else f'   {extra.command}'}"
        yield from ("", "caches", *(f"  {_cache_line(item)}" for item in self.caches))
        if self.variables:
            yield from ("", "variables", *(f"  {name}={printable(text)}" for name, text in self.variables))
        yield ""
        yield (
            "nothing is wrong" if not self.findings else "\n".join(f"wrong: {item}" for item in self.findings)
        )

    def _machine(self) -> Iterator[str]:
        cpu = self.processor
        yield f"  processor    {printable(cpu.name)}, {cpu.count} of them; kernels run on {cpu.threads} threads"
        if cpu.target:
            yield f"  code for     {cpu.target}: {' '.join(cpu.features)}"
        yield f"  GPU          {printable(self.gpu)}"


def examine() -> Examination:
    """Look at the installation and the machine; nothing is changed."""
    core = tuple(PackageState(name, version_of(name)) for name in CORE)
    runs = tuple(BackendState(row.name, row.title, row.missing()) for row in backends.ROWS if row.is_offered)
    threads, wrong = _threads()
    wrong += [f"package {item}; pip install {item.name}" for item in core if not item.version]
    wrong += [f"backend {row.name} does not run: {row.missing}" for row in runs if _is_broken(row)]
    return Examination(
        place=str(shipped("")),
        processor=_processor(threads, has_code=not any(map(_is_broken, runs))),
        gpu=_gpu(),
        core=core,
        extras=tuple(_extras()),
        backends=runs,
        caches=(_object_cache(),),
        variables=tuple((name, os.environ[name]) for name in VARIABLES if name in os.environ),
        findings=tuple(wrong),
    )


def version_of(name: str) -> str:
    """The version of a package by its import name, as its metadata says; empty where it is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_broken(backend: BackendState) -> bool:
    """Whether a backend is missing that every installation should have: only GPUs are not everywhere."""
    return backend.missing is not None and backend.name != "cuda"


def _threads() -> tuple[int, list[str]]:
    """The threads of kernels, and what is wrong with the variable that sets their number."""
    try:
        return count_threads(), []
    except LamellaError as problem:
        finding = problem.findings[0]
        return 0, [f"{finding.message}; {finding.hint}"]


def _processor(threads: int, has_code: bool) -> ProcessorState:
    count = os.cpu_count() or 1
    if not has_code:
        return ProcessorState(processor(), count, threads, "", ())
    target = host_target()
    features = target.features.split(",")
    return ProcessorState(
        processor(), count, threads, target.name, tuple(item for item in FEATURES if f"+{item}" in features)
    )


def _gpu() -> str:
    """The GPU of this machine in words, or why there is none."""
    library = [cublaslt.describe()] if driver.missing() is None else []
    return "; ".join([*driver.describe(), *library])


def _extras() -> Iterator[ExtraState]:
    """The extras that this version offers, each with its packages."""
    groups: dict[str, list[str]] = {}
    for package, extra in EXTRAS.items():
        groups.setdefault(extra, []).append(package)
    offered = _offered()
    for extra, packages in sorted(groups.items()):
        if offered is None or extra in offered:
            yield ExtraState(extra, tuple(PackageState(name, version_of(name)) for name in packages))


def _offered() -> list[str] | None:
    """The extras of our own metadata; None where there are none because nobody installed us."""
    try:
        return importlib.metadata.metadata(OURS).get_all("Provides-Extra")
    except importlib.metadata.PackageNotFoundError:
        return None


def _object_cache() -> CacheState:
    cache = open_cache()
    if cache is None:
        return CacheState(OBJECTS, "", 0, 0, 0)
    files, size = cache.count()
    return CacheState(OBJECTS, str(cache.folder), files, size, cache.largest)


def _cache_line(cache: CacheState) -> str:
    if not cache.folder:
        return f"{cache.what}: none; LAMELLA_CACHE names a folder that only you can write to"
    held = f"{cache.files:,} files, {cache.size / MIB:.1f} MiB of {cache.largest // MIB} MiB at most"
    return f"{cache.what}: {held}, in {printable(cache.folder)}"
