"""Launch and run: TEN200 to TEN249, of extensions TEN255 to TEN257."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, Rule

UNKNOWN_KERNEL = Rule(
    "TEN200", "Functions", "no kernel is named '@{name}'", hint="the program has the kernels {kernels}"
)
ARGUMENT_COUNT = Rule(
    "TEN201",
    "Functions",
    "kernel '@{name}' takes {wanted} arguments, {given} were passed",
    hint="it takes {parameters}",
)
GROUP_COUNT = Rule(
    "TEN202",
    "Execution model",
    "kernel '@{name}' cannot be launched with groups={groups}",
    hint="the number of work-groups is an integer from 0 to 2^62, or up to three of them: x, y, z",
)
UNREAD_AXIS = Rule(
    "TEN255",
    "Execution model",
    "kernel '@{name}' is launched with {count} work-groups along {axis} and never asks for its place there",
    hint="read 'builtin.group_id.{axis}' in the kernel, or launch it with one number of work-groups",
)
APPLY_CODE = Rule(
    "TEN257",
    "Cooperative matrices",
    "the body of this apply on {type} would be written as {count} statements; the limit is {limit}",
    hint="apply less at once, or on smaller matrices",
)
NO_COMPONENT = Rule(
    "TEN256",
    "Cooperative matrices",
    "each of {lanes} work-items holds {count} components of {type}, and none has the number {component}{place}",
    hint="components are counted from 0; cooperative_matrix_apply works on all of them",
)
ARGUMENT_KIND = Rule(
    "TEN203",
    "Functions",
    "argument '%{name}' is {given}, its type is {type}",
    hint="a memref takes a NumPy array, a group a list of arrays, a scalar a number",
)
ARGUMENT_VALUE = Rule(
    "TEN204",
    "Scalar types",
    "argument '%{name}' is {value}, which is no value of type {type}",
    hint="integers must fit the type, only complex types take complex numbers",
)
ARGUMENT_ELEMENT = Rule(
    "TEN205",
    "Memref type",
    "argument '%{name}' has elements of NumPy type {given}, its memref has {element}",
    hint="convert the array with .astype, or change the element type",
)
ARGUMENT_ORDER = Rule(
    "TEN206",
    "Memref type",
    "argument '%{name}' has order {given}, its memref has order {wanted}",
    hint="the shape of the array is the shape of the memref, mode by mode",
)
ARGUMENT_SIZE = Rule(
    "TEN207",
    "Memref type",
    "mode {mode} of argument '%{name}' has size {given}, its memref says {wanted}",
    hint="pass an array of that size, or write ? for a size known only at launch",
)
ARGUMENT_STRIDE = Rule(
    "TEN208",
    "Strided layout",
    "argument '%{name}' has strides {given}, its memref says {wanted}",
    hint="the default layout is column-major (numpy.asfortranarray); strided<?,…> takes any strides",
)
ARGUMENT_LAYOUT = Rule(
    "TEN209",
    "Strided layout",
    "mode {mode} of argument '%{name}' has a stride of {given} bytes with elements of {size} bytes",
    hint="strides are whole numbers of elements and not negative; copy the array",
)
ARGUMENT_GROUP = Rule(
    "TEN210",
    "Group type",
    "group argument '%{name}' has {given} arrays, its type says {wanted}",
    hint="pass one array per element of the group",
)
ARGUMENT_OFFSET = Rule(
    "TEN211",
    "Group type",
    "group argument '%{name}' has offset {given}, its type says {wanted}",
    hint="an offset is 0 or more; write offset: ? for one known only at launch",
)
BROKEN_ALIGNMENT = Rule(
    "TEN212",
    "Alignment attribute",
    "argument '%{name}' lies {rest} bytes past a multiple of its alignment {alignment}",
    hint="allocate the array aligned, or promise less",
)
BROKEN_SHAPE_GCD = Rule(
    "TEN213",
    "Greatest common divisor (GCD) attributes",
    "mode {mode} of argument '%{name}' has size {given}, shape_gcd promises a multiple of {divisor}",
    hint="pad the array, or promise less",
)
BROKEN_STRIDE_GCD = Rule(
    "TEN214",
    "Greatest common divisor (GCD) attributes",
    "mode {mode} of argument '%{name}' has stride {given}, stride_gcd promises a multiple of {divisor}",
    hint="pad the array, or promise less",
)
OUT_OF_BOUNDS = Rule(
    "TEN215",
    "Memref type",
    "index {index} of mode {mode} leaves '%{name}', whose size there is {size}{place}",
    hint="indices run from 0 to the size of the mode minus 1",
)
VIEW_OUT_OF_BOUNDS = Rule(
    "TEN216",
    "Subview",
    "elements {offset} to {last} of mode {mode} leave '%{name}', whose size there is {size}{place}",
    hint="a slice is offset:size, not begin:end",
)
OUT_OF_MEMORY = Rule(
    "TEN217",
    "Memref type",
    "an access through '%{name}' reaches elements {low} to {high} of the {size} that its memory holds{place}",
    hint="run with bounds checks to find the view that leaves its memref",
)
GROUP_OUT_OF_BOUNDS = Rule(
    "TEN218",
    "Group type",
    "element {index} leaves group '%{name}' of size {size}{place}",
    hint="launch as many work-groups as the group has elements",
)
READ_ONLY = Rule(
    "TEN219",
    "Memref type",
    "argument '%{name}' is a read-only array and is written to{place}",
    hint="pass a writable copy of the array",
)
SHAPES_DISAGREE = Rule(
    "TEN220",
    "Collective instructions",
    "shapes of {function} do not agree: {shapes}{place}",
    hint="modes written ? must agree when the kernel runs",
)
WRONG_EXPANSION = Rule(
    "TEN221",
    "Expand",
    "mode {mode} of '%{name}' has size {size} and is expanded to {sizes}{place}",
    hint="the product of the new sizes is the size of the mode",
)
WRONG_FUSION = Rule(
    "TEN222",
    "Fuse",
    "modes {first} to {last} of '%{name}' cannot be fused: sizes {sizes}, strides {strides}{place}",
    hint="the stride of each mode times its size must be the stride of the next",
)
EMPTY_SLICE = Rule(
    "TEN223",
    "Subview",
    "the size of mode {mode} in a view of '%{name}' is {size}{place}",
    hint="a size known only at run time must be positive",
)
DIVIDED_BY_ZERO = Rule(
    "TEN224", "Arithmetic (binary)", "{function} of integers by zero{place}", hint="test the divisor before"
)
SHIFT_AMOUNT = Rule(
    "TEN225",
    "Arithmetic (binary)",
    "{function} of a {type} by {amount}{place}",
    hint="shift amounts run from 0 to the number of bits minus 1",
)
TOO_MANY_STEPS = Rule(
    "TEN226",
    "For",
    "the run takes more than {limit} steps{place}",
    hint="loops need a positive step; a longer run needs a larger limit max_steps",
)
DIVERGED_BARRIER = Rule(
    "TEN227",
    "Barrier",
    "{reached} of {items} work-items wait at this barrier, the others never reach it{place}",
    hint="move the barrier out of conditions and loops that differ between work-items",
)
DIVERGED_SUBGROUP = Rule(
    "TEN228",
    "SPMD instructions",
    "{reached} of {items} work-items of a subgroup execute {instruction}, the others never reach it{place}",
    hint="all work-items of a subgroup execute such an instruction together; move it out of the condition",
)
NOT_UNIFORM = Rule(
    "TEN229",
    "Cooperative matrix type",
    "operand '%{name}' of {instruction} differs between the work-items of a subgroup{place}",
    hint="operands of cooperative instructions are the same in the whole subgroup",
)
WRONG_LANE = Rule(
    "TEN230",
    "Subgroup broadcast",
    "work-item {lane} is asked for in a subgroup of size {size}{place}",
    hint="work-items of a subgroup are numbered from 0 to its size minus 1",
)
TOO_MUCH_LOCAL = Rule(
    "TEN231",
    "Alloca",
    "a work-group holds {bytes} bytes of local memory, the limit max_total_bytes is {limit}{place}",
    hint="allocate less, or in smaller regions",
)
TOO_LARGE_VALUE = Rule(
    "TEN232",
    "Execution model",
    "values of {element} in the shape {shape} take {bytes} bytes, the limit max_total_bytes is {limit}{place}",
    hint="work on smaller tiles",
)
WORK_GROUP_LIMIT = Rule(
    "TEN233",
    "Functions",
    "a work-group of '@{name}' has {items} work-items, the interpreter takes {limit} at most",
    hint="make work_group_size smaller and launch more work-groups",
)
PACKED_POSITION = Rule(
    "TEN234",
    "Cooperative matrix load",
    "column {column} of a packed access to '%{name}' is not a multiple of {pack}{place}",
    hint="a packed access begins with the first element of a pack",
)
OVERLAPPING_ARGUMENTS = Rule(
    "TEN235",
    "Functions",
    "arguments '%{name}' and '%{other}' share memory and '%{name}' is written",
    hint="an array that a kernel writes overlaps no other argument; pass a copy",
)
LOCAL_LIMIT = Rule(
    "TEN236",
    "Alloca",
    "a work-group of '@{name}' needs {bytes} bytes of local memory, the target {target} has {limit}",
    hint="allocate less, or let lifetimes end earlier: in smaller regions, with fewer uses far apart",
)
NO_SUBGROUP_SIZE = Rule(
    "TEN238",
    "Functions",
    "subgroup_size of '@{name}' is {size}, the target {target} has {sizes}",
    hint="choose one of those, or leave it to the target",
)
TARGET_WORK_GROUP = Rule(
    "TEN239",
    "Functions",
    "a work-group of '@{name}' has {items} work-items, the target {target} takes {limit} at most",
    hint="make work_group_size smaller and launch more work-groups",
)
MATRIX_LIMIT = Rule(
    "TEN240",
    "Cooperative matrix type",
    "a cooperative matrix of {rows} x {columns}; machine code takes {most} rows and {limit} components at most",
    hint="work on smaller blocks in a loop",
)
MATRIX_CODE = Rule(
    "TEN241",
    "Cooperative matrix type",
    "the cooperative matrices of '@{name}' take {count} vector instructions, the limit is {limit}",
    hint="work on smaller blocks in a loop, and unroll less",
)
ARGUMENT_MISALIGNED = Rule(
    "TEN242",
    "Memref type",
    "argument '%{name}' lies {rest} bytes past a multiple of {width}, the bytes of a number of its elements",
    hint="machine code reads whole numbers from their own places: pass a copy, numpy.require(array, requirements='A')",
)
TESTED = Rule(
    "TEN243",
    "Execution model",
    "'@{name}' runs {how}: {why}",
    NOTE,
    "what the sizes, integers and work-groups of a launch prove runs without; an if around the access proves more",
)
