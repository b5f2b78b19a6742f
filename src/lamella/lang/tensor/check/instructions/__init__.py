"""The operands, results and shapes of each instruction that contains no region."""

from __future__ import annotations

from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.check.instructions.accesses import check_access
from lamella.lang.tensor.check.instructions.blas import check_blas
from lamella.lang.tensor.check.instructions.cooperative import (
    check_components,
    check_cooperative,
    check_subgroup,
)
from lamella.lang.tensor.check.instructions.scalars import check_scalar
from lamella.lang.tensor.check.instructions.views import check_view
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    AtomicUpdate,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    Expand,
    Fuse,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    SizeOf,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
)


def check_instruction(here: Here, instruction: Instruction) -> None:
    """Check an instruction on its own; those with regions and yields are not checked here."""
    match instruction:
        case Constant() | Arith() | Compare() | Math() | Cast() | Builtin():
            check_scalar(here, instruction)
        case Load() | Store() | AtomicUpdate() | SizeOf() | Alloca() | LifetimeStop():
            check_access(here, instruction)
        case Subview() | Expand() | Fuse():
            check_view(here, instruction)
        case Blas():
            check_blas(here, instruction)
        case CoopLoad() | CoopMulAdd() | CoopScale() | CoopStore():
            check_cooperative(here, instruction)
        case CoopConstruct() | CoopExtract() | CoopInsert():
            check_components(here, instruction)
        case SubgroupBroadcast() | SubgroupOperation():
            check_subgroup(here, instruction)
        case _:
            return
