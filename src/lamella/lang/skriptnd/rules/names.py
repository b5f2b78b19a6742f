"""Names, modules and imports: SKR030 to SKR069."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# Identifiers
DUPLICATE = Rule(
    "SKR030",
    "2.2 Operator definitions",
    "'{name}' is declared twice: it is already {what}",
    hint="identifiers of one operator are unique",
)
UNDECLARED = Rule("SKR031", "2.2 Operator definitions", "'{name}' is not declared")
HIDDEN_SYMBOL = Rule(
    "SKR032",
    "2.9 Using helper symbols",
    "'{name}' of @using is not visible in @{block}",
    hint="@attrib and @input see attributes and extents; in @input also helper symbols made of plain attributes only",
)
USED_BEFORE = Rule(
    "SKR033",
    "2.9 Using helper symbols",
    "'{name}' is used before it is defined",
    hint="definitions are evaluated in their order",
)
NO_MEMBER = Rule(
    "SKR034",
    "2.4 Expressions",
    "'{name}.{field}' does not exist: '{name}' is {what}",
    hint="a tensor has .shape and .rank, a pack of tensors has .size",
)
TYPE_NAME_TAKEN = Rule("SKR035", "2.13 Generics", "the generic type '{name}' has the name of an element type")
UNKNOWN_TYPE = Rule(
    "SKR036",
    "2.3 Type system",
    "'{name}' is not a type",
    hint="types are int, real, bool, str, the sized element types and the names of @dtype",
)
TENSOR_HERE = Rule(
    "SKR037",
    "2.4 Expressions",
    "'{name}' is a tensor; {place} takes values that are known before the run",
    hint="compute with operators in @compose, or with element accesses in @lower",
)

# Operators and their blocks
OPERATOR_TWICE = Rule(
    "SKR040", "2.15 Modules and imports", "operator '{name}' is defined twice in this module"
)
NAMED_LIKE_TYPE = Rule(
    "SKR041",
    "2.2 Operator definitions",
    "operator '{name}' has the name of an element type",
    hint="{name}(x) is read as a cast; choose another name",
)
LOWER_AND_COMPOSE = Rule(
    "SKR042",
    "2.2 Operator definitions",
    "'{name}' has both @lower and @compose",
    hint="an operator is a formula or a composition",
)
STATE_WITHOUT_COMPOSE = Rule(
    "SKR043",
    "2.7 Variable and constant tensors",
    "'{name}' has a block @{block} and is not composed",
    hint="declare the variable where this operator is invoked, and pass it as an input",
)
RECURSION = Rule(
    "SKR044",
    "3 Graph composition",
    "'{name}' composes itself without an end: {chain}",
    hint="put the inner call below a condition that is known before the run",
)

# Modules
NOT_IMPORTED = Rule(
    "SKR050",
    "2.15 Modules and imports",
    "module '{module}' is not imported",
    hint="add: import {module};",
)
UNKNOWN_OPERATOR = Rule("SKR051", "2.15 Modules and imports", "operator '{name}' is not defined")
PRIVATE_OPERATOR = Rule(
    "SKR052",
    "2.15 Modules and imports",
    "operator '{name}' is private to module '{module}'",
    hint="names that begin with '_' are visible in their own module only",
)
IMPORTED_TWICE = Rule("SKR053", "2.15 Modules and imports", "module '{module}' is imported twice", WARNING)
GRAPH_IN_MODULE = Rule(
    "SKR054",
    "2.15 Modules and imports",
    "graph '{name}' stands in the imported module '{module}'",
    hint="only the main module holds graphs; write an operator",
)
IMPORTS_ITSELF = Rule("SKR055", "2.15 Modules and imports", "module '{module}' imports itself")
MISSING_MODULE = Rule(
    "SKR056",
    "2.15 Modules and imports",
    "module '{module}' is not found: {reason}",
    hint="modules are those of the standard library and the files of the model folder, 'a.b' being a/b.sknd",
)
IMPORT_CYCLE = Rule("SKR057", "2.15 Modules and imports", "modules import each other in a circle: {chain}")
SHADOWED_MODULE = Rule(
    "SKR058",
    "2.15 Modules and imports",
    "'{path}' takes the place of the standard module '{module}' in this model: {differing}",
    NOTE,
    hint="the modules of the library itself keep the standard one; rename the file where that one is meant",
)
MAIN_IMPORTED = Rule("SKR059", "2.15 Modules and imports", "the main module is not imported")

# Graphs
GRAPH_WITHOUT_COMPOSE = Rule(
    "SKR060", "2.6 Operator inputs and outputs", "graph '{name}' has no @compose block"
)
GRAPH_EXTENT = Rule(
    "SKR061",
    "2.6 Operator inputs and outputs",
    "the extent '{extent}' of graph input '{name}' has no upper bound",
    hint="write {extent}|BOUND, or a number",
)
GRAPH_RANK_CAPTURE = Rule(
    "SKR062",
    "2.6 Operator inputs and outputs",
    "graph input '{name}' captures its rank; the rank of a graph input is written down",
)
GRAPH_RANK = Rule(
    "SKR063",
    "2.6 Operator inputs and outputs",
    "graph input '{name}' has a pack whose length {length} is not known",
    hint="the length is a number, an expression of attributes, or has a bound",
)
GRAPH_SHAPE = Rule("SKR064", "2.6 Operator inputs and outputs", "graph input '{name}' has no shape")
GRAPH_CALLED = Rule(
    "SKR065",
    "2.10 Composing operators",
    "graph '{name}' is invoked outside of branches and loops",
    hint="define it as an operator",
)
GRAPH_ALWAYS_GIVEN = Rule(
    "SKR067",
    "2.6 Operator inputs and outputs",
    "input '{name}' of the main graph {what}",
    hint="no invocation leaves it out; let an attribute choose, or declare a @constant",
)
BOUND_DIFFERS = Rule(
    "SKR066",
    "2.6 Operator inputs and outputs",
    "'{name}' has the bound {first} before and {second} here",
    hint="write the bound once, or the same bound again",
)
