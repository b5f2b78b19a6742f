"""What kernels are compiled for: one description for each target, all that sizes and passes depend on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.base.suggest import list_known

KIB = 1 << 10
MIB = 1 << 20
TILES = ("amx-tile", "amx-bf16", "amx-int8")
"""The features of x86 that make up its matrix tiles."""


@dataclass(frozen=True, slots=True)
class MatrixShapes:
    """Cooperative products that a target has instructions for: the element types of A, B and C, and each extent."""

    elements: tuple[str, str, str]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depths: tuple[int, ...]

    def __str__(self) -> str:
        extents = (self.rows, self.columns, self.depths)
        shown = " x ".join("|".join(map(str, sizes)) for sizes in extents)
        return f"{self.elements[0]} · {self.elements[1]} → {self.elements[2]}: {shown}"


@dataclass(frozen=True, slots=True)
class Target:
    """A machine as the passes see it."""

    name: str
    subgroup_sizes: tuple[int, ...]
    """The sizes that a subgroup may have, in ascending order."""
    max_work_group_size: int
    """Work-items of one work-group."""
    register_bytes: int
    register_count: int
    """Registers that one subgroup has to itself."""
    vector_bytes: int
    """Bytes that one instruction loads or computes."""
    local_bytes: int
    """Local memory of one work-group."""
    threads: int | None = None
    """Subgroups of a work-group that run at the same time; None where only the work-group size limits them."""
    subgroups_per_group: int | None = None
    """Subgroups of a work-group that does not say how many it wants; None where the shapes decide."""
    default_subgroup_size: int | None = None
    """The subgroup size where nothing asks for another; None where shapes and registers decide."""
    matrix_shapes: tuple[MatrixShapes, ...] = ()
    """Cooperative products with instructions of their own; where there are none, any shape will do."""
    matrix_subgroup_size: int | None = None
    """The subgroup size that those instructions need."""
    missing_elements: tuple[str, ...] = ()
    """Element types that the target cannot compute in."""
    multiprocessors: int = 0
    """Work-groups that run at the same time whatever their size, on a GPU; 0 where that is not known."""
    default_alignment: int = 128
    """Bytes to which pointers are aligned where no attribute promises less or more."""
    largest_unrolled: int = 1 << 12
    """Statements that unrolling may make of one loop."""
    triple: str = ""
    cpu: str = ""
    features: str = ""
    """How LLVM names the machine; empty where no machine code is written."""

    @property
    def has_threads(self) -> bool:
        """Whether each work-item is a thread of its own, as on a GPU, not a lane of a vector."""
        return self.triple.startswith("nvptx")

    @property
    def capability(self) -> int:
        """That of the GPUs that it is code for, 10 times the major number and the minor one; 0 for what is no GPU."""
        return int(re.sub(r"\D", "", self.cpu)) if self.has_threads else 0

    @property
    def tensor_cores(self) -> bool:
        """Whether warps have instructions for products of bf16 and f16 that add in f32."""
        return self.capability >= 80

    @property
    def has_dependent_launch(self) -> bool:
        """Whether there is programmatic dependent launch (PDL): a kernel starts early and waits itself."""
        return self.capability >= 90

    @property
    def widens_bytes(self) -> bool:
        """Whether one instruction makes halves of two reals of 8 bits."""
        return self.capability >= 90

    @property
    def has_warpgroups(self) -> bool:
        """Whether there are warpgroups (`wgmma`) and TMA: four warps multiply tiles of shared memory together."""
        return self.has_threads and self.cpu == "sm_90a"

    @property
    def register_space(self) -> int:
        """Bytes of all registers of a subgroup."""
        return self.register_bytes * self.register_count

    @property
    def amx(self) -> bool:
        """Whether products of bf16 and of i8 may run on the matrix tiles of x86."""
        return all(f"+{name}" in self.features.split(",") for name in TILES)

    @property
    def has_lane_masks(self) -> bool:
        """Whether x86 has registers for masks of lanes."""
        return "+avx512f" in self.features.split(",")

    def max_subgroups(self, subgroup_size: int) -> int:
        """How many subgroups of a size a work-group may have."""
        most = max(1, self.max_work_group_size // subgroup_size)
        return most if self.threads is None else min(most, self.threads)


# --- the targets --------------------------------------------------------------------------------------------

_CPU = Target(
    name="cpu",
    subgroup_sizes=(1, 2, 4, 8, 16, 32, 64),
    max_work_group_size=1 << 14,
    register_bytes=64,
    register_count=32,
    vector_bytes=64,
    local_bytes=4 * MIB,
    subgroups_per_group=1,
    default_subgroup_size=16,
)
_X86 = "x86_64-unknown-linux-gnu"
_HALVES = {"rows": (16, 32), "columns": (8, 16, 32), "depths": (16, 32)}
_PVC = Target(
    name="pvc",
    subgroup_sizes=(16, 32),
    max_work_group_size=1024,
    register_bytes=64,
    register_count=128,
    vector_bytes=64,
    local_bytes=128 * KIB,
    threads=64,
    matrix_shapes=(
        MatrixShapes(("bf16", "bf16", "f32"), **_HALVES),
        MatrixShapes(("f16", "f16", "f32"), **_HALVES),
        MatrixShapes(("i8", "i8", "i32"), (16, 32, 64), (8, 16, 32), (32, 64)),
    ),
    matrix_subgroup_size=16,
)
_AVX512 = replace(
    _CPU,
    name="cpu-avx512",
    triple=_X86,
    cpu="x86-64-v4",
    features="+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,-prefer-256-bit",
)
_CUDA = Target(
    name="cuda",
    subgroup_sizes=(1, 2, 4, 8, 16, 32),
    max_work_group_size=1024,
    register_bytes=128,
    register_count=255,
    vector_bytes=128,
    local_bytes=48 * KIB,
    default_subgroup_size=32,
    multiprocessors=132,
    triple="nvptx64-nvidia-cuda",
    cpu="sm_90",
)
_GPUS = (("sm_80", 108), ("sm_86", 72), ("sm_89", 142), ("sm_100", 148), ("sm_120", 170))
"""GPUs by their architectures, with the multiprocessors of A100, A10, L40S, B200 and RTX 5090."""
_ALL = (
    _AVX512,
    replace(_AVX512, name="cpu-amx", features=",".join([_AVX512.features, *(f"+{name}" for name in TILES)])),
    replace(
        _CPU,
        name="cpu-avx2",
        register_bytes=32,
        register_count=16,
        vector_bytes=32,
        triple=_X86,
        cpu="x86-64-v3",
        features="+avx2,+fma,+f16c,+bmi,+bmi2",
    ),
    replace(
        _CPU,
        name="cpu-aarch64",
        register_bytes=16,
        vector_bytes=16,
        triple="aarch64-unknown-linux-gnu",
        cpu="neoverse-n1",
        features="+neon,+fullfp16",
    ),
    _PVC,
    replace(_PVC, name="pvc-large", register_count=256, threads=32),
    Target(
        name="tgl",
        subgroup_sizes=(8, 16, 32),
        max_work_group_size=512,
        register_bytes=32,
        register_count=128,
        vector_bytes=32,
        local_bytes=64 * KIB,
        threads=56,
        missing_elements=("f64", "c64"),
    ),
    _CUDA,
    # A T4. LLVM would write an older PTX for it, which has no `tanh.approx`.
    replace(_CUDA, name="sm_75", cpu="sm_75", multiprocessors=40, features="+ptx80"),
    *(replace(_CUDA, name=name, cpu=name, multiprocessors=count) for name, count in _GPUS),
    replace(_CUDA, name="sm_90a", cpu="sm_90a", features="+ptx83"),
)
TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _ALL})
"""The targets by name."""


def find_target(name: str) -> Target:
    """The target of a name."""
    found = TARGETS.get(name)
    if found is None:
        raise InputError(f"there is no target '{name[:80]}'", hint=_list_targets(name))
    return found


def list_gpu_targets(capability: int) -> list[Target]:
    """The targets whose code a GPU of a capability runs, the best one last; what has a letter is for its own alone."""
    found = [item for item in _ALL if item.has_threads and item.capability <= capability]
    fitting = [item for item in found if item.cpu[-1].isdigit() or item.capability == capability]
    return sorted(fitting, key=lambda item: (item.capability, item.cpu))


def _list_targets(name: str) -> str:
    """The targets that there are, and the one that was meant: for a GPU that has none the last before it."""
    given = re.fullmatch(r"sm_(\d{1,4})", name)
    if given is None or any(item.capability == int(given[1]) for item in _ALL):
        return list_known(name, TARGETS, "targets are:")
    older = list_gpu_targets(int(given[1]))
    head = f"code for '{older[-1].name}' runs there" if older else "GPUs before sm_75 lack what kernels need"
    return f"{head}; targets are: {', '.join(TARGETS)}"


# --- printing -----------------------------------------------------------------------------------------------


def describe(target: Target) -> str:
    """A target as text, one property on a line."""
    rows = list(_rows(target))
    width = max(len(label) for label, _ in rows)
    return "\n".join([f"{target.name}: a target of kernels", *(f"  {a:<{width}}  {b}" for a, b in rows)])


def _rows(target: Target) -> Iterator[tuple[str, str]]:
    yield "subgroup sizes", ", ".join(map(str, target.subgroup_sizes))
    default = target.default_subgroup_size
    yield "default subgroup size", "by shapes and registers" if default is None else str(default)
    yield "work-items of a work-group", f"{target.max_work_group_size} at most"
    count = target.subgroups_per_group
    yield (
        "subgroups of a work-group",
        "by shapes" if count is None else f"{count} where nothing asks for more",
    )
    yield "registers", f"{target.register_count} of {target.register_bytes} bytes"
    yield "vector", f"{target.vector_bytes} bytes"
    yield "local memory", f"{target.local_bytes} bytes"
    yield "default alignment", f"{target.default_alignment} bytes"
    yield "unrolled statements", f"{target.largest_unrolled} at most"
    for shapes in target.matrix_shapes or ("any shape",):
        yield "cooperative matrices", str(shapes)
    if target.missing_elements:
        yield "no elements of", ", ".join(target.missing_elements)
    if target.triple:
        yield "LLVM", " ".join(filter(None, (target.triple, target.cpu, target.features)))


def target_to_json(target: Target) -> dict[str, object]:
    """A target as data, each property by its name."""
    data: dict[str, object] = {item.name: getattr(target, item.name) for item in fields(target)}
    shapes = [
        {item.name: getattr(shape, item.name) for item in fields(shape)} for shape in target.matrix_shapes
    ]
    return {**data, "matrix_shapes": shapes}
