"""Every normative statement of NEM: code, place in the specification, sentence, repair."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# Lexical structure
SYNTAX = Rule("NEM001", "Grammar", "expected {wanted} {where}, found {found}")
UNDEFINED = Rule(
    "NEM002",
    "Formal Language Definition",
    "'{name}' is not defined before this use",
    hint="buffers, regions and tokens are declared before the tasks that use them",
)
BAD_CHARACTER = Rule("NEM003", "Lexical", "the text '{text}' has no meaning here")
EMPTY_BUFFER = Rule("NEM004", "Buffers", "buffer '{name}' has size {size}; sizes must be positive")
FLOAT_FORM = Rule(
    "NEM005",
    "Lexical",
    "'{text}' is not a FLOAT; it needs digits on both sides of the point",
    hint="write {repair}",
)
LITERAL_RANGE = Rule("NEM006", "Lexical", "the number {text} does not fit in 64 bits")
DUPLICATE_NAME = Rule(
    "NEM007",
    "Constant Declarations",
    "'{name}' is already declared",
    hint="names of one scope and of the scopes around it are unique",
)
RESERVED_NAME = Rule("NEM008", "Grammar", "'{name}' is a reserved word and cannot be declared")
UNKNOWN_OPCODE = Rule("NEM009", "Opcode Signatures", "'{name}' is not an opcode")

# Documents
LATE_INCLUDE = Rule(
    "NEM010", "Document Model", "an include stands after other declarations; includes come first"
)
UNREADABLE_INCLUDE = Rule("NEM011", "Include Semantics", "cannot read '{path}': {cause}")
INCLUDE_CYCLE = Rule("NEM012", "Include Semantics", "include of '{path}' closes a cycle: {chain}")
DUPLICATE_DEVICE = Rule("NEM013", "Include Semantics", "device '{name}' is defined twice")
DUPLICATE_FAMILY = Rule("NEM014", "Include Semantics", "type family '{name}' is defined twice")
UNKNOWN_DEVICE = Rule(
    "NEM015", "Program Device Directive", "device '{name}' is not defined here or in an included file"
)
AMBIGUOUS_DEVICE = Rule(
    "NEM016", "Program Device Directive", "'{path}' defines {count} devices and none is named like the file"
)
SECOND_PROGRAM = Rule("NEM017", "Program Header", "a file holds one program; this is a second {what}")
LIMIT = Rule(
    "NEM018",
    "Limits",
    "{what} exceeds the limit of {limit}",
    hint="the limit '{option}' can be raised in the options",
)

# Constants and expressions
NOT_CONSTANT = Rule(
    "NEM020",
    "Constant Declarations",
    "const '{name}' uses '{used}', which is not a constant",
    hint="only literals and earlier constants may stand here",
)
FORWARD = Rule("NEM021", "Constant Declarations", "'{name}' is used before its declaration in line {line}")
DIVISION_BY_ZERO = Rule("NEM022", "Constant Declarations", "division by zero in '{text}'")
OUT_OF_RANGE = Rule("NEM023", "Limits", "'{text}' leaves the 64-bit integers")
FLOAT_HERE = Rule("NEM024", "Lexical", "a FLOAT stands where {what} needs an integer")
CONST_IN_LOOP = Rule(
    "NEM025",
    "Constant Declarations",
    "const '{name}' stands inside a loop",
    hint="constants are the same in every iteration; move it before the loop",
)
WRONG_KIND = Rule("NEM026", "Grammar", "'{name}' is {kind}, not {wanted}")
PRECEDENCE = Rule(
    "NEM027",
    "Expressions",
    "'{text}' is read as {reading}, not from left to right",
    NOTE,
    hint="add parentheses to make the order visible",
)
LOOP_VARIANT = Rule(
    "NEM028",
    "Constant Declarations",
    "{what} must be the same in every iteration but uses the loop variable '{name}'",
)

# Buffers
BUFFER_IN_LOOP = Rule(
    "NEM030",
    "Buffers",
    "buffer '{name}' is declared inside a loop",
    hint="buffers live as long as the program; declare it before the loop",
)
BUFFER_PROPERTY = Rule("NEM031", "Buffers", "buffer '{name}' {problem}")
BAD_ALIGNMENT = Rule(
    "NEM032", "Buffers", "alignment {align} of buffer '{name}' is not a power of two between 1 and 2^30"
)
ENGINE_RANGE = Rule(
    "NEM033",
    "Engines",
    "buffer '{name}' lies in L1[{engine}] but {device} has {count} engine(s)",
    hint="engine indices start at 0; use a lower one, or a device with more engines",
)
UNUSED_BUFFER = Rule("NEM034", "Buffers", "buffer '{name}' is never used", WARNING)

# Regions
OUT_OF_BOUNDS = Rule(
    "NEM040",
    "Hazards and Aliasing Rules",
    "region [{first}, {end}) leaves buffer '{buffer}' of {size} bytes{iteration}",
)
EMPTY_EXTENT = Rule("NEM041", "Regions", "the extent of a region is {extent}; extents must be positive")
EXTENT_TOO_SMALL = Rule(
    "NEM042",
    "Extent Consistency",
    "extent {extent} is smaller than the {needed} bytes of {count} elements of {elem}",
)
STRIDES_LEAVE = Rule(
    "NEM043",
    "Extent Consistency",
    "strides {strides} address element {element}, byte {byte}, outside the extent of {extent} bytes",
)
INCOMPLETE_TYPE = Rule(
    "NEM044",
    "Region Type Syntax",
    "a typed region needs elem, shape and layout or strides; {missing} is missing",
)
DOUBLE_TYPE = Rule("NEM045", "Region Type Syntax", "{what} is given twice for one region")
BAD_DIMENSION = Rule(
    "NEM046", "Shapes and Rank", "dimension {axis} of shape is {size}; dimensions must be positive"
)
STRIDE_COUNT = Rule("NEM047", "Layout and Strides", "{count} strides for a shape of rank {rank}")
LAYOUT_RANK = Rule(
    "NEM048", "Layout and Strides", "layout {layout} names 4 axes but the shape has rank {rank}"
)

# Quantisation
QUANT_FIELDS = Rule("NEM050", "Quantization Descriptor", "{form} {problem}")
QUANT_LENGTH = Rule(
    "NEM051",
    "Quantization Descriptor",
    "{field} has {found} values; {form} along axis {axis} of size {size} needs {wanted}",
)
QUANT_SCALE = Rule("NEM052", "Quantization Descriptor", "scale {scale} is not a positive finite number")
QUANT_GROUP = Rule("NEM053", "Quantization Descriptor", "group_size is {size}; it must be positive")
QUANT_AXIS = Rule("NEM054", "Quantization Descriptor", "axis {axis} is outside a shape of rank {rank}")
QUANT_ZERO = Rule(
    "NEM055", "Quantization Descriptor", "zero point {zero} is outside the range of {elem}, {low} to {high}"
)

# Loops
LOOP_RANGE = Rule(
    "NEM060",
    "Loops and Bounded Pipelining",
    "the loop runs from {first} to {last}; the end may be at least {first} - 1",
)
BAD_WINDOW = Rule(
    "NEM061",
    "Loops and Bounded Pipelining",
    "@max_in_flight({count}) allows no iteration; the number must be at least 1",
)

# Tokens
EMPTY_WAIT = Rule("NEM070", "Control Tasks", "wait names no token")
UNUSED_TOKEN = Rule(
    "NEM071",
    "Tasks and Tokens",
    "nothing waits for token '{name}'",
    WARNING,
    hint="drop the name, or wait for it before its data is used",
)
TOKEN_SCOPE = Rule(
    "NEM072",
    "Loops and Bounded Pipelining",
    "'{name}' belongs to the loop in line {line} and is not visible here",
    hint="a loop is complete at its endloop; later statements need no token of it",
)
LIVE_TOKENS = Rule(
    "NEM073",
    "Unit Characteristics",
    "up to {count} tokens are live at once but SEQ.max_active_tokens of {device} is {limit}",
    WARNING,
    hint="the binder will serialise; lower @max_in_flight or wait earlier",
)

# Tasks
INPUT_COUNT = Rule("NEM080", "Opcode Signatures", "{opcode} takes {wanted} input(s), found {found}")
OUTPUT_COUNT = Rule("NEM081", "Opcode Signatures", "{opcode} has {wanted} output(s), found {found}")
UNTYPED_OPERAND = Rule(
    "NEM082",
    "Region Type Syntax",
    "operand {operand} of {opcode} has no type",
    hint="compute operands need elem, shape and layout or strides",
)
UNKNOWN_ATTRIBUTE = Rule("NEM083", "Opcode Signatures", "{opcode} has no attribute '{name}'")
MISSING_ATTRIBUTE = Rule("NEM084", "Opcode Signatures", "{opcode} needs the attribute '{name}'")
ATTRIBUTE_TYPE = Rule(
    "NEM085", "Opcode Signatures", "attribute '{name}' of {opcode} takes {wanted}, found {found}"
)
DUPLICATE_ATTRIBUTE = Rule("NEM086", "Opcode Signatures", "attribute '{name}' is given twice")
OPERAND_RANK = Rule(
    "NEM087", "Opcode Signatures", "operand {operand} of {opcode} has rank {found}; it must be {wanted}"
)
OPERAND_LAYOUT = Rule(
    "NEM088", "Opcode Signatures", "operand {operand} of {opcode} has layout {found}; it must be {wanted}"
)
OUTPUT_SHAPE = Rule(
    "NEM089", "Opcode Signatures", "{opcode} gives {wanted} but its output is declared {found}"
)
SHAPE_MISMATCH = Rule("NEM090", "Opcode Signatures", "{opcode}: {problem}")
ATTRIBUTE_VALUE = Rule("NEM091", "Opcode Signatures", "attribute '{name}' of {opcode} is {found}; {wanted}")
MOVE_OPERANDS = Rule("NEM092", "Transfer Tasks", "{opcode} {problem}")
MOVE_SIZE = Rule("NEM093", "Transfer Tasks", "{opcode} copies {source} bytes into a region of {target} bytes")
MOVE_TYPE = Rule("NEM094", "Transfer Tasks", "{opcode} between different types: {source} into {target}")
GENERIC_OPERATION = Rule(
    "NEM095",
    "Generic Compute Escape Hatch",
    "operation '{name}' has no kernel; only its operands are checked",
    WARNING,
    hint="a function @{name} of the tensor language in the file of the program's name with the ending .tensor",
)
FUTURE_OPCODE = Rule(
    "NEM096",
    "NPM Hardware Support Status",
    "{opcode} is defined for future hardware; binders for current silicon refuse it",
    WARNING,
)

# Types
NO_VARIANT = Rule("NEM100", "Type Family Matching", "no type variant of {opcode} takes {types}")
DEVICE_VARIANT = Rule(
    "NEM101",
    "Device Validity Rule",
    "{opcode} with {types} needs {variant}, which device '{device}' does not have",
)
ACCUM_TYPE = Rule("NEM102", "Type Families", "accum_type is {found} but {family} accumulates in {wanted}")
MISSING_QUANT = Rule(
    "NEM103", "Quantization Constraints", "operand {operand} of {opcode} needs a quant descriptor"
)
EXTRA_QUANT = Rule(
    "NEM104", "Type Families", "operand {operand} of {opcode} carries quant but {family} takes none"
)
OUTPUT_QUANT = Rule(
    "NEM105",
    "Quantization Constraints",
    "the output of {opcode} has no quant; accumulators are clamped, not rescaled",
    WARNING,
    hint="give the output region a quant descriptor",
)
KEPT_TYPE = Rule("NEM106", "Task Taxonomy", "{opcode}: {problem}")
BIAS_QUANT = Rule(
    "NEM107",
    "Quantization Constraints",
    "the bias of {opcode} has no quant while its weights are scaled along the reduction; it is taken as real values",
    WARNING,
)
VIEW_QUANT = Rule(
    "NEM108",
    "Layout / Tensor View Operations",
    "{opcode} moves stored integers, but {input} and {output} read them with different quant",
    WARNING,
    hint="view tasks never rescale; give both the same quant, or dequantize and quantize",
)
INTEGER_FUNCTION = Rule(
    "NEM109",
    "Elementwise Operations",
    "{opcode} of unquantised {elem} has no meaning",
    hint="add quant to the regions, or cast to a float type",
)

# Decorators
UNKNOWN_DECORATOR = Rule("NEM110", "Decorators", "@{name} is not a decorator")
MISPLACED_DECORATOR = Rule("NEM111", "Decorators", "@{name} belongs on {wanted}, not on {found}")
DECORATOR_ARGUMENTS = Rule("NEM112", "Decorators", "@{name} takes {wanted}")
RESOURCE_TARGET = Rule(
    "NEM113", "Decorators", "{unit} is not a @resource target", hint="targets are NMU, CSTL, DMA and VPU"
)
RESOURCE_UNIT = Rule(
    "NEM114", "Resource Classes and Task Mapping", "{opcode} cannot run on {unit}; it runs on {eligible}"
)
RESOURCE_REMAP = Rule(
    "NEM115",
    "Target Resource Validity Rule",
    "{unit}[{index}] is remapped: {device} has {count} {unit}",
    WARNING,
)
RESOURCE_INDEX = Rule("NEM116", "Decorators", "unit index {index} of {unit} is negative")
ENGINE_CONFLICT = Rule("NEM117", "Task Placement", "@seq_engine({engine}) {problem}")
WRITE_READONLY = Rule("NEM118", "Decorators", "{opcode} writes a @readonly region")
READ_WRITEONLY = Rule("NEM119", "Decorators", "{opcode} reads a @writeonly region")
DUPLICATE_DECORATOR = Rule("NEM120", "Decorators", "@{name} is given twice")
NO_UNIT = Rule(
    "NEM122", "Target Resource Validity Rule", "device '{device}' has no {unit} and no VPU to run {opcode}"
)

# Placement and capacity
CROSS_ENGINE = Rule(
    "NEM125",
    "Task Placement",
    "{opcode} refers to both L1[{first}] and L1[{second}]; a task stays on one engine",
)
CAPACITY = Rule(
    "NEM130",
    "Memory capacity rule",
    "buffers in {level} need {needed} bytes but {device} has {available}: {excess} too many",
)
PADDING = Rule(
    "NEM131",
    "Memory capacity rule",
    "alignment alone makes {level} overflow: {needed} bytes with padding, {available} available",
    WARNING,
)

# Hazards
READ_AFTER_WRITE = Rule(
    "NEM140",
    "Hazards and Aliasing Rules",
    "{reader} may read {range} of '{buffer}' before {writer} has written it{iterations}",
    hint="add the writer's token to deps, or wait for it",
)
WRITE_AFTER_READ = Rule(
    "NEM141",
    "Hazards and Aliasing Rules",
    "{writer} may overwrite {range} of '{buffer}' while {reader} still reads it{iterations}",
    hint="order the two, or give them different bytes",
)
WRITE_AFTER_WRITE = Rule(
    "NEM142",
    "Hazards and Aliasing Rules",
    "{second} and {first} both write {range} of '{buffer}' in no order{iterations}",
    hint="order the two, or give them different bytes",
)
OVERLAPPING_MOVE = Rule(
    "NEM143",
    "Hazards and Aliasing Rules",
    "{opcode} copies overlapping {range} of '{buffer}'{iterations}",
    hint="add @memmove if that is meant",
)
OVERLAPPING_OUTPUT = Rule(
    "NEM144",
    "Hazards and Aliasing Rules",
    "output {output} of {opcode} overlaps {other} in {range} of '{buffer}'{iterations}",
    hint="only elementwise tasks may work in place, on the same bytes read with the same type",
)
IDEMPOTENT_RELOAD = Rule(
    "NEM145",
    "Hazards and Aliasing Rules",
    "{task} reloads the same bytes into '{buffer}' in every iteration while others may read them",
    WARNING,
    hint="hoist it before the loop; `lamella sim --fix` does",
)
NOT_PROVED = Rule(
    "NEM146",
    "Hazards and Aliasing Rules",
    "{what} is not proved: {cause}",
    WARNING,
)
IMPORTED_ALIAS = Rule(
    "NEM147",
    "Hazards and Aliasing Rules",
    "imported buffers '{first}' and '{second}' may be the same memory and are accessed in no order{iterations}",
    hint="mark the region that is only read @readonly, or order the two",
)
HOISTABLE = Rule(
    "NEM148",
    "Loops and Bounded Pipelining",
    "{task} moves the same bytes in every iteration",
    NOTE,
    hint="it can stand before the loop",
)
NEVER_WRITTEN = Rule(
    "NEM149",
    "Memory Levels",
    "{task} reads '{buffer}' in L1, which no task writes",
    WARNING,
    hint="load it with a transfer first; only tasks fill an L1",
)

# Devices
UNKNOWN_PARENT = Rule(
    "NEM150", "Device Inheritance", "parent device '{name}' is not defined before '{child}'"
)
EXTENDS_CYCLE = Rule("NEM151", "Device Inheritance", "device '{name}' extends itself: {chain}")
DERIVED_VERSION = Rule(
    "NEM152", "Device Inheritance", "derived device '{name}' states spec_version; it is inherited"
)
MISSING_VERSION = Rule("NEM153", "Schema Rules", "device '{name}' states no spec_version")
MISSING_MUST = Rule(
    "NEM154",
    "Schema Rules",
    "device '{name}' lacks the MUST variants {variants}",
    hint="extend nem_baseline_1_0",
)
MANDATORY_AND_EXTENDED = Rule(
    "NEM155", "Schema Rules", "{variant} is both mandatory and extended in device '{name}'"
)
TOPOLOGY_FIELD = Rule("NEM156", "Schema Rules", "topology of device '{name}' lacks {field}")
TOPOLOGY_VALUE = Rule(
    "NEM157", "Schema Rules", "{field} of device '{name}' is {value}; it must be at least {least}"
)
UNIT_PLACE = Rule("NEM158", "Device Configuration Grammar", "{unit} is not a unit of {place}")
DOUBLE_SETTING = Rule("NEM159", "Device Configuration Grammar", "{what} is given twice")
UNKNOWN_VARIANT = Rule(
    "NEM160", "Device Configuration Grammar", "'{variant}' is not a variant of a known type family"
)
ABSTRACT_TARGET = Rule("NEM161", "Schema Rules", "device '{name}' has no topology and cannot be a target")
UNKNOWN_SETTING = Rule("NEM163", "Device Configuration Grammar", "'{name}' is not a setting of {place}")
BAD_FAMILY = Rule("NEM164", "Type Family Grammar", "type family '{name}': {problem}")
SPEC_VERSION = Rule(
    "NEM166", "Schema Rules", "device '{name}' is written for NEM {found}; this is NEM {known}", WARNING
)

# Running
UNINITIALISED = Rule(
    "NEM170",
    "Execution Semantics",
    "{task} reads {range} of '{buffer}', which nothing has written{iteration}",
    WARNING,
)
OVERFLOW = Rule(
    "NEM171",
    "Accumulation Type",
    "{task} leaves {elem}: {value}{iteration}",
    WARNING,
    hint="the value wraps around: integers and accumulators keep their low bits",
)
RUN_DIVISION = Rule("NEM172", "Elementwise Operations", "{task} divides by zero{iteration}")
GATHER_INDEX = Rule(
    "NEM173",
    "Layout / Tensor View Operations",
    "{task} gathers index {index} from an axis of size {size}{iteration}",
)
UNSUPPORTED = Rule(
    "NEM174",
    "Generic Compute Escape Hatch",
    "{task} asks for operation '{name}', which has no implementation here",
)
MEMORY_NEEDED = Rule(
    "NEM175",
    "Limits",
    "the program's buffers take {needed} bytes; the limit is {limit}",
    hint="raise it with --limit max_total_bytes=N",
)
TOO_LONG = Rule(
    "NEM176",
    "Limits",
    "{needed} task instances exceed the limit of {limit}",
    hint="raise it with --limit max_expansion=N",
)
BAD_INPUT = Rule("NEM177", "Execution Semantics", "input '{name}' {problem}")
KERNEL_FAULT = Rule(
    "NEM178",
    "Generic Compute Escape Hatch",
    "{task}: a step of kernel '{name}' has no value{iteration}",
    hint="it divides by zero, or takes an element that does not exist",
)

# Binding
NO_DEVICE = Rule(
    "NEM180", "Program Device Directive", "the program names no device", hint="choose one with --device"
)
FUTURE_REFUSED = Rule(
    "NEM181",
    "NPM Hardware Support Status",
    "{opcode} needs future hardware",
    hint="--allow-future binds it all the same",
)
ADDRESS_SPACE = Rule(
    "NEM182",
    "Memory capacity rule",
    "buffer '{buffer}' does not fit into {level}: {needed} bytes with alignment, {available} available",
)
SERIALISED = Rule(
    "NEM183",
    "Unit Characteristics",
    "{count} tokens are needed at once and {limit} exist; {added} waits were added",
    WARNING,
)
NOT_DETERMINISTIC = Rule("NEM184", "Determinism Semantics", "{task} cannot be kept deterministic: {cause}")
BAD_STREAM = Rule("NEM188", "STCB", "{problem}")

# Kernels of compute tasks
UNKNOWN_KERNEL = Rule("NEM190", "Generic Compute Escape Hatch", "'{file}' has no kernel '{name}'")
KERNEL_OPERANDS = Rule(
    "NEM191",
    "Generic Compute Escape Hatch",
    "kernel '{name}' takes {wanted} regions; the task has {found}",
    hint="the memrefs of a kernel are the inputs of the task, then its outputs",
)
KERNEL_ELEMENT = Rule(
    "NEM192",
    "Generic Compute Escape Hatch",
    "parameter %{parameter} of kernel '{name}' is {wanted}; the region is {found}",
)
KERNEL_SHAPE = Rule(
    "NEM193",
    "Generic Compute Escape Hatch",
    "parameter %{parameter} of kernel '{name}' has {wanted}; the region has {found}",
    hint="the last dimension of a region is the first mode of its memref",
)
KERNEL_SCALAR = Rule("NEM194", "Generic Compute Escape Hatch", "kernel '{name}' {problem}")
KERNEL_UNFIT = Rule("NEM195", "Generic Compute Escape Hatch", "kernel '{name}' cannot be a task: {problem}")

# Stored weights
UNKNOWN_CODEC = Rule("NEM196", "Device-Level Execution Units", "'{name}' is not a codec")
CODEC_PLACE = Rule("NEM197", "Device-Level Execution Units", "buffer '{name}' {problem}")
CODEC_USE = Rule("NEM198", "Device-Level Execution Units", "{task} {problem}")
CODEC_DATA = Rule(
    "NEM199", "Device-Level Execution Units", "what is stored of '{name}' as {codec}: {problem}"
)

RULES = tuple(value for value in list(globals().values()) if isinstance(value, Rule))

BY_CODE = {rule.code: rule for rule in RULES}
