"""Names, regions and placement: TEN070 to TEN099, of extensions TEN250 to TEN252."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

# Names
UNDEFINED = Rule("TEN070", "Identifier", "'%{name}' is not defined")
USED_EARLY = Rule(
    "TEN071", "Regions", "'%{name}' is used before it is defined", hint="move its definition above the use"
)
OUT_OF_REGION = Rule(
    "TEN072",
    "Regions",
    "'%{name}' is not visible outside the region that defines it",
    hint="yield it from the region, or define it before the region",
)
REDEFINED = Rule(
    "TEN073", "Regions", "'%{name}' is defined already", hint="choose another name: a value never changes"
)
FUNCTION_REDEFINED = Rule("TEN074", "Functions", "function '@{name}' is defined already")

# Placement
COLLECTIVE_IN_SPMD = Rule(
    "TEN075",
    "Execution model",
    "'{instruction}' is a collective instruction and stands in an SPMD region",
    hint="move it out of the foreach or parallel around it",
)
SPMD_IN_COLLECTIVE = Rule(
    "TEN076",
    "Execution model",
    "'{instruction}' is an SPMD instruction and stands in a collective region",
    hint="put it into a parallel or foreach region",
)
COLLECTIVE_STORE = Rule(
    "TEN077",
    "Store",
    "'{instruction}' in a collective region is done by every work-item",
    WARNING,
    "store from a foreach or parallel region",
)

# Yields
YIELD_OUTSIDE = Rule(
    "TEN078", "Yield", "yield stands in {where}, which gives no values", hint="only for and if give values"
)
YIELD_NOT_LAST = Rule("TEN079", "Yield", "yield is not the last instruction of its region")
YIELD_MISSING = Rule(
    "TEN080", "Yield", "{where} gives {types} and does not end in yield", hint="end it with yield (…)"
)
YIELD_COUNT = Rule("TEN081", "Yield", "{found} yielded where {where} gives {types}")
YIELD_TYPE = Rule("TEN082", "Yield", "value {position} of yield is of type {type}, not {wanted}")
ELSE_MISSING = Rule(
    "TEN083", "If", "an if that gives {types} has no else", hint="add an else that yields as many"
)

# Loops and conditions
CARRIED_COUNT = Rule("TEN084", "For", "{carried} carried for the types {types}")
CARRIED_TYPE = Rule("TEN085", "For", "'%{name}' starts from type {type}, not {wanted}")
RETURNED_TYPE = Rule(
    "TEN086",
    "For",
    "'{instruction}' does not give values of type {type}",
    hint="it gives booleans, scalars and cooperative matrices",
)
CONDITION = Rule("TEN087", "If", "the condition '%{name}' is of type {type}, not bool")
BOUND_TYPE = Rule(
    "TEN088",
    "For",
    "'%{name}' is of type {type}, and the loop counts in {wanted}",
    hint="the type of a loop is index where none is written: write '%{variable}:{type}', or cast the bound",
)
FOREACH_COUNT = Rule(
    "TEN089",
    "Foreach",
    "foreach has {variables} variables, {begins} values to start from and {ends} to end at",
)
TILE_COUNT = Rule(
    "TEN250",
    "Foreach",
    "foreach_tile has {variables} variables, {begins} values to start from, {ends} to end at, {sizes} sizes and {tile} "
    "largest sizes",
    hint="each of the lists has an entry for each variable",
)
TILE_SIZE = Rule(
    "TEN251", "Foreach", "a tile of {size} indices has none", hint="the largest size of a tile is 1 or more"
)
NOT_ALONE = Rule(
    "TEN252",
    "Cooperative matrices",
    "'{instruction}' stands in {where}, which each {who} executes on its own",
    hint="do it before or behind that region",
)
STEP = Rule("TEN090", "For", "the step '%{name}' is {step}; a loop steps by 1 or more")
