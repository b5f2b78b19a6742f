"""Operands, results and shapes of instructions: TEN100 to TEN169, of extensions TEN253, TEN254 and TEN258."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

# Scalars
OPERAND_KIND = Rule(
    "TEN100", "Instructions", "'%{name}' is of type {type}; '{instruction}' takes {wanted} here"
)
RESULT_TYPE = Rule("TEN101", "Instructions", "'{instruction}' gives {wanted} here, not {type}")
OPERAND_TYPE = Rule(
    "TEN102",
    "Arithmetic (binary)",
    "'%{name}' is of type {type}, and '{instruction}' gives {wanted}",
    hint="operands are of the type of the result; cast what is not",
)
UNSUPPORTED_TYPE = Rule(
    "TEN103", "Arithmetic (binary)", "'{instruction}' does not work on {type}, only on {wanted}"
)
CONSTANT_KIND = Rule(
    "TEN104",
    "Constant",
    "the constant {value} is not one of {type}",
    hint="true or false for bool, 1 for integers, 1.0 for floating types, [1.0, 0.0] for complex ones",
)
CONSTANT_RANGE = Rule(
    "TEN105", "Constant", "the constant {value} does not fit {type} and becomes {kept}", WARNING
)
COMPARED_TYPES = Rule(
    "TEN106", "Comparison", "'{instruction}' compares {left} with {right}", hint="cast one of them"
)
FORBIDDEN_CAST = Rule("TEN107", "Cast", "{operand} cannot be cast to {type}")
BUILTIN_TYPE = Rule("TEN108", "Builtin (mixed)", "'{instruction}' is of type {wanted}, not {type}")

# Accesses
INDEX_TYPE = Rule(
    "TEN109", "Load", "'%{name}' is of type {type}; {what} is of type index", hint="cast it to index"
)
INDEX_COUNT = Rule("TEN110", "Load", "'%{name}' takes a list of {order} as indices, not of {count}")
STORED_TYPE = Rule(
    "TEN111", "Store", "'%{name}' is of type {type} and is stored where elements are {element}"
)
ATOMIC_TYPE = Rule(
    "TEN112",
    "Store",
    "there are no atomic updates of {element}",
    hint="they exist for i32, i64, index, f16, f32, f64, c32, c64",
)
SIZE_MODE = Rule("TEN113", "Size", "'%{name}' is of order {order} and has no mode {mode}")
ALLOCA_GLOBAL = Rule(
    "TEN114", "Alloca", "alloca gives local memory, not {type}", hint="write 'local' in the type"
)
ALLOCA_DYNAMIC = Rule("TEN115", "Alloca", "the size of {type} is not known before the run")

# Views
SLICE_COUNT = Rule("TEN116", "Subview", "'%{name}' takes a list of {order} as slices, not of {count}")
SLICE_NEGATIVE = Rule(
    "TEN117", "Subview", "slice {mode} is {offset}:{size}; offset and size are not negative"
)
SLICE_PAST_END = Rule(
    "TEN118",
    "Subview",
    "slice {mode} ends at {end}, and the mode at {bound}",
    WARNING,
    "what lies behind is not defined",
)
VIEW_ELEMENT = Rule("TEN119", "Subview", "a view of {operand} elements cannot be one of {type}")
VIEW_SPACE = Rule("TEN120", "Subview", "a view of {operand} memory cannot be one of {type} memory")
VIEW_ORDER = Rule("TEN121", "Subview", "the view is of order {wanted}, and its type of order {order}")
VIEW_SIZE = Rule("TEN122", "Subview", "mode {mode} of the view has size {wanted}, and its type says {size}")
VIEW_STRIDE = Rule(
    "TEN123",
    "Subview",
    "mode {mode} of the view has stride {wanted}, and its type says {stride}",
    hint="the view is {type}; any stride may be '?'",
)
EXPAND_MODE = Rule("TEN124", "Expand", "'%{name}' is of order {order} and has no mode {mode}")
EXPAND_NEGATIVE = Rule("TEN125", "Expand", "a mode is expanded into one of size {size}; sizes are 1 or more")
EXPAND_PRODUCT = Rule("TEN126", "Expand", "{factors} is {product}, and mode {mode} has size {size}")
FUSE_MODES = Rule(
    "TEN127",
    "Fuse",
    "modes {first} to {last} of '%{name}' cannot be fused: 0 <= from < to < {order} is needed",
)
FUSE_STRIDE = Rule(
    "TEN128",
    "Fuse",
    "modes {mode} and {next} are not adjacent: size {size} times stride {stride} is not {following}",
)

# Linear algebra
PROMOTION = Rule(
    "TEN129",
    "Scalar types",
    "{left} of type {source} is not promotable to {target}, the type of {right}",
    hint="a type is promotable to one that represents all its values",
)
PROMOTION_PAIR = Rule(
    "TEN130",
    "Scalar types",
    "neither of {left} and {right}, the types of {names}, is promotable to the other",
)
ORDER = Rule(
    "TEN131", "Collective instructions", "{operand} of '{instruction}' is of order {order}, not {wanted}"
)
SHAPES = Rule("TEN132", "Collective instructions", "the shapes of '{instruction}' do not fit: {shapes}")
CUMSUM_MODE = Rule("TEN133", "Cumulative sum", "A is of order {order} and has no mode {mode}")
ATOMIC_BETA = Rule(
    "TEN134",
    "Collective instructions",
    "beta of an atomic '{instruction}' is '%{name}', which is not a constant 0 or 1",
)

# Cooperative matrices
MATRIX_USE = Rule("TEN135", "Cooperative matrix mul add", "{operand} has the use {use}, not {wanted}")
MATRIX_SHAPES = Rule("TEN136", "Cooperative matrix mul add", "the shapes do not fit: {shapes}")
MATRIX_ELEMENT = Rule(
    "TEN137", "Cooperative matrix load", "{type} has other elements than '%{name}' of {memory}"
)
PACKED_ACCESS = Rule(
    "TEN138",
    "Cooperative matrix load",
    "'%{name}' is of order 3, and a packed access takes {wanted}, not {found}",
    hint="it takes a matrix_a without .t from memref<i8x4x…>, memref<bf16x2x…> or memref<f16x2x…>",
)
COMPONENT = Rule(
    "TEN253",
    "Cooperative matrices",
    "a work-item holds no component {component} of {type}{why}",
    hint="cooperative_matrix_apply works on all components",
)
STORED_FLOAT = Rule(
    "TEN258",
    "Scalar types",
    "'{instruction}' computes in {element}, whose numbers are moved, cast and factors of products alone",
    hint="cast them first, to f32 for example; the sums of a product of them are f32",
)
ATOMIC_RESULT = Rule(
    "TEN254",
    "Store",
    "'{instruction}' of {element} gives no value: its parts are updated one after the other",
    hint="complex numbers are added by 'store.atomic_add'",
)
