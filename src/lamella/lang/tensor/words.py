"""The words of the tensor language: keywords, the functions of its instructions, and newer names for them."""

from __future__ import annotations

from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS, KEYS, STORED_FLOATS, USES

SCALARS = (*INTEGERS, *FLOATS, *COMPLEX)
"""Types that instructions compute in."""
ELEMENTS = (*SCALARS, *STORED_FLOATS)
"""Types that an element of a memref may have."""

BINARY = ("add", "sub", "mul", "div", "rem", "min", "max", "shl", "shr", "and", "or", "xor")
UNARY = ("abs", "neg", "not", "conj", "im", "re")
COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
MATH = ("exp", "native_exp")
NEWER_MATH = ("exp2", "sin", "cos", "log", "log2")
NATIVE_MATH = tuple(f"native_{name}" for name in NEWER_MATH)
BINARY_MATH = ("pow",)
"""Functions of two operands."""
OWN_MATH = (
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sqrt", "rsqrt", "erf", "sigmoid", "floor", "ceil", "round", "trunc", "sign", *BINARY_MATH),
    *("native_tanh", "native_erf"),
)
EXTRA_MATH = (*NEWER_MATH, *NATIVE_MATH, *OWN_MATH)
"""Functions that the specification does not have, an extension; `round` takes halves away from zero."""
EXTRA_ARITH = ("select", "fma")
"""`arith.select %c, %a, %b : T` and `arith.fma %a, %b, %c : T`, extensions too."""
PACKED = {"bf16": 2, "f16": 2, "i8": 4}
"""How many elements a packed cooperative access keeps together along k, by element type."""

MIXED_BUILTINS = ("group_id", "group_size", "num_subgroups", "subgroup_size")
AXES = ("x", "y", "z")
AXIS_BUILTINS = ("group_id", "group_size")
"""Builtins that a launch with several axes has one of for each; the first is the one without an axis."""
SUBGROUP_AXES = ("num_subgroups", "subgroup_id")
"""Builtins that count along the rows and columns of a work-group where an axis is named, else all in one row."""
SPMD_BUILTINS = ("subgroup_id", "subgroup_local_id")
REDUCTIONS = ("add", "max", "min")
FORMS = ("exclusive_scan", "inclusive_scan", "reduce")
CHECKS = ("rows", "cols", "both")
STORE_FLAGS = ("atomic", "atomic_add")

TRANSPOSES = {"axpby": 1, "cumsum": 0, "gemm": 2, "gemv": 1, "ger": 0, "hadamard": 0, "sum": 1}
"""How many transposes each linear algebra instruction has."""
OPERANDS = {"axpby": 4, "cumsum": 4, "gemm": 5, "gemv": 5, "ger": 5, "hadamard": 5, "sum": 4}
"""How many values each linear algebra instruction takes, cumsum besides its mode."""

DOTTED = (
    *(f"arith.{name}" for name in (*BINARY, *UNARY, *EXTRA_ARITH)),
    *(f"cmp.{name}" for name in COMPARISONS),
    *(f"math.{name}" for name in (*MATH, *EXTRA_MATH)),
    *(f"builtin.{name}" for name in (*MIXED_BUILTINS, *SPMD_BUILTINS)),
    *(f"subgroup_{name}.{form}" for name in REDUCTIONS for form in FORMS),
)
"""Words with a dot in them: one token each."""

ALIASES = {"hadamard_product": "hadamard"}
"""Names that the specification uses itself, as good as the others."""

NEWER_COMPARISONS = {
    "equal": "eq",
    "not_equal": "ne",
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}
NEWER = {
    **{name: f"arith.{name}" for name in (*BINARY, *UNARY)},
    **{name: f"cmp.{function}" for name, function in NEWER_COMPARISONS.items()},
    **{name: f"math.{name}" for name in (*MATH, *NEWER_MATH, *NATIVE_MATH)},
    **{f"subgroup_{form}_{name}": f"subgroup_{name}.{form}" for name in REDUCTIONS for form in FORMS},
    **{name: f"builtin.{name}" for name in (*MIXED_BUILTINS, *SPMD_BUILTINS)},
    "num_groups": "builtin.group_size",
    "subgroup_linear_id": "builtin.subgroup_id",
    "atomic_store": "store.atomic",
    "cooperative_matrix_atomic_store": "cooperative_matrix_store.atomic",
    "cooperative_matrix_atomic_add": "cooperative_matrix_store.atomic_add",
}
"""Names of a newer version, each with the specification's."""

UNSUPPORTED = frozenset(
    [
        *("associated", "atomic_load", "cooperative_matrix_prefetch", "cooperative_matrix_atomic_load"),
        *("cooperative_matrix_atomic_max", "cooperative_matrix_atomic_min"),
    ]
)
"""Instructions of a newer version that mean nothing the specification can say."""

MATRIX_EXTENSIONS = tuple(
    f"cooperative_matrix_{name}"
    for name in ("apply", "construct", "extract", "insert", *(f"reduce_{name}" for name in REDUCTIONS))
)
PLAIN = (
    *(
        "alloca",
        "barrier",
        "cast",
        "constant",
        "expand",
        "for",
        "foreach",
        "fuse",
        "if",
        "lifetime_stop",
        "load",
    ),
    *("parallel", "size", "store", "subview", "yield", "subgroup_broadcast", "cooperative_matrix_load"),
    *("cooperative_matrix_mul_add", "cooperative_matrix_scale", "cooperative_matrix_store", *TRANSPOSES),
    *("foreach_tile", *(f"atomic_{name}" for name in REDUCTIONS), *MATRIX_EXTENSIONS),
)
INSTRUCTIONS = frozenset([*PLAIN, *DOTTED, *ALIASES, *NEWER, *UNSUPPORTED])
"""Words that begin an instruction."""

VALUELESS = frozenset(
    [
        *(
            "barrier",
            "foreach",
            "foreach_tile",
            "lifetime_stop",
            "parallel",
            "store",
            "yield",
            "cooperative_matrix_store",
        ),
        *TRANSPOSES,
    ]
)
"""Instructions that produce no value."""

OTHERS = (
    *(
        "func",
        "attributes",
        "init",
        "as",
        "else",
        "memref",
        "group",
        "coopmatrix",
        "strided",
        "offset",
        "local",
        "global",
    ),
    *("bool", "true", "false", "x", *ELEMENTS, *USES, *KEYS),
)
WORDS = frozenset([*INSTRUCTIONS, *OTHERS])
"""All words of the language; there is no other word without a sigil."""

_MLIR = {
    "constant": ("arith.constant",),
    "cast": (
        *("arith.extf", "arith.truncf", "arith.extsi", "arith.trunci", "arith.sitofp", "arith.fptosi"),
        *("arith.index_cast", "arith.bitcast"),
    ),
    "arith.add": ("arith.addf", "arith.addi"),
    "arith.sub": ("arith.subf", "arith.subi"),
    "arith.mul": ("arith.mulf", "arith.muli"),
    "arith.div": ("arith.divf", "arith.divsi"),
    "arith.rem": ("arith.remf", "arith.remsi"),
    "arith.max": ("arith.maximumf", "arith.maxnumf", "arith.maxsi"),
    "arith.min": ("arith.minimumf", "arith.minnumf", "arith.minsi"),
    "arith.neg": ("arith.negf",),
    "arith.and": ("arith.andi",),
    "arith.or": ("arith.ori",),
    "arith.xor": ("arith.xori",),
    "arith.shl": ("arith.shli",),
    "arith.shr": ("arith.shrsi",),
    "arith.abs": ("math.absf", "math.absi"),
    "cmp.lt": ("arith.cmpf", "arith.cmpi"),
    "math.pow": ("math.powf", "math.fpowi"),
    "math.round": ("math.roundeven",),
    "load": ("memref.load", "affine.load", "vector.load", "vector.transfer_read", "tensor.extract"),
    "store": ("memref.store", "affine.store", "vector.store", "vector.transfer_write", "tensor.insert"),
    "store.atomic_add": ("memref.atomic_rmw",),
    "alloca": ("memref.alloc", "memref.alloca"),
    "lifetime_stop": ("memref.dealloc",),
    "size": ("memref.dim", "tensor.dim"),
    "subview": ("memref.subview", "memref.reinterpret_cast"),
    "expand": ("memref.expand_shape",),
    "fuse": ("memref.collapse_shape",),
    "for": ("scf.for", "affine.for"),
    "foreach": ("scf.parallel", "scf.forall", "affine.parallel"),
    "if": ("scf.if", "affine.if"),
    "yield": ("scf.yield", "affine.yield"),
    "parallel": ("gpu.launch",),
    "barrier": ("gpu.barrier",),
    "builtin.group_id": ("gpu.block_id",),
    "builtin.group_size": ("gpu.grid_dim",),
    "builtin.subgroup_id": ("gpu.subgroup_id",),
    "builtin.num_subgroups": ("gpu.num_subgroups",),
    "builtin.subgroup_size": ("gpu.subgroup_size",),
    "builtin.subgroup_local_id": ("gpu.lane_id", "gpu.thread_id"),
    "subgroup_broadcast": ("gpu.shuffle", "gpu.subgroup_broadcast"),
    "subgroup_add.reduce": ("gpu.subgroup_reduce", "gpu.all_reduce"),
    "cooperative_matrix_load": ("gpu.subgroup_mma_load_matrix",),
    "cooperative_matrix_store": ("gpu.subgroup_mma_store_matrix",),
    "cooperative_matrix_mul_add": ("gpu.subgroup_mma_compute",),
    "gemm": ("linalg.matmul", "linalg.gemm"),
    "gemv": ("linalg.matvec",),
    "func": ("gpu.func",),
}
OTHER_NAMES = {name: word for word, names in _MLIR.items() for name in names}
"""What the dialects of MLIR call what this language has, for those who come from there."""
