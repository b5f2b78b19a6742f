"""Quantisation: which tensors, by which operators."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.lang.skriptnd.check.composition.invocations import Call
from lamella.lang.skriptnd.check.composition.state import State
from lamella.lang.skriptnd.check.definitions import Signature
from lamella.lang.skriptnd.check.kinds import agrees
from lamella.lang.skriptnd.nodes import Quantization
from lamella.lang.skriptnd.rules import composition as rules


def check_quantization(state: State) -> None:
    """Quantised tensors exist, each is quantised once, by an operator from one tensor to one tensor."""
    operator, seen = state.operator, set[str]()
    items = [item for item in operator.items("quantize") if isinstance(item, Quantization)]
    if items and not operator.graph:
        state.context.report(rules.QUANTISED_OPERATOR.at(items[0].span, name=operator.name))
        return
    for item in items:
        name = item.tensor.removeprefix(f"{state.definitions.module}.").removeprefix(f"{operator.name}.")
        if name in seen:
            state.context.report(rules.QUANTISED_TWICE.at(item.span, name=item.tensor))
        elif not _exists(state, name):
            state.context.report(rules.UNKNOWN_TENSOR.at(item.span, name=item.tensor))
        seen.add(name)
        _check_quantizer(state, item)


def _exists(state: State, name: str) -> bool:
    """Whether a tensor may have a name; below a label only the composition can tell."""
    first, _, rest = name.partition(".")
    if rest:
        return first in state.all_labels
    entry = state.context.scope.names.get(first.partition(":")[0])
    return entry is not None and (entry.kind.tensor or not entry.kind.known)


def _check_quantizer(state: State, item: Quantization) -> None:
    found = state.definitions.resolve(item.operator, item.span)
    if found is None or isinstance(found, Diagnostic):
        if found is not None:
            state.context.report(found)
        return
    signature = state.definitions.signature(item.operator, found)
    problem = _problem(signature)
    if problem:
        state.context.report(rules.QUANTISER.at(item.span, name=item.operator, what=problem))
        return
    call = Call(state, item, signature)
    call.check_types(item.types)
    call.check_attributes(item.attributes)


def _problem(signature: Signature) -> str:
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return f"it has {len(signature.inputs)} inputs and {len(signature.outputs)} outputs"
    (_, before), (_, after) = signature.inputs[0], signature.outputs[0]
    if before.packed or after.packed:
        return "it takes or gives a pack"
    return "" if agrees(before, after) else f"it makes {after.type} of {before.type}"
