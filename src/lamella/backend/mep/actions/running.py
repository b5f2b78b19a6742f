"""Models: run whole, in blocks, and two blocks side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from lamella.backend.mep.faults import Fault, fault, refused
from lamella.backend.mep.state import State
from lamella.backend.mep.values import as_array
from lamella.base.arrays import Array
from lamella.lang.nac.check.sections import opcodes
from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.plan import BlockCall, blocks_of


def run_models(state: State, step: Step) -> None:
    """An instruction that runs models."""
    match step.fields:
        case int(model), tuple(inputs), tuple(outputs):
            loaded, arrays = state.model(model).model, _arrays(state, inputs)
            action = f"runs model {model}"
            found = state.ask(action, lambda: loaded(*arrays))
            _write_results(state, action, found, outputs)
        case _:
            _run_blocks(state, list(blocks_of(step)))


def _arrays(state: State, slots: Sequence[int]) -> list[Array]:
    return [as_array(value) for value in state.read_all(slots)]


def _write_results(state: State, action: str, found: Sequence[Array], slots: Sequence[int]) -> None:
    """Put results into slots, the first ones where the plan does not ask for all."""
    if len(slots) > len(found):
        raise fault(
            f"{action} for {len(slots)} results and gets {len(found)}", "name no more slots than results"
        )
    for slot, array in zip(slots, found, strict=False):
        state.write(slot, state.take(action, array))


def _run_blocks(state: State, calls: Sequence[BlockCall]) -> None:
    """Read what all blocks take, run them, and write what all of them give: neither sees the other."""
    given = [_arrays(state, call.takes) for call in calls]
    models = [state.model(call.model).model for call in calls]

    def run(number: int) -> Sequence[Array]:
        call, model = calls[number], models[number]
        return state.ask(_action(call), lambda: model.run_block(call.first, call.last, given[number]))

    if len(calls) == 1:
        results = [run(0)]
    else:
        with ThreadPoolExecutor(len(calls)) as threads:
            results = list(threads.map(run, range(len(calls))))
    for call, found in zip(calls, results, strict=True):
        _write_results(state, _action(call), found, call.gives)


def _action(call: BlockCall) -> str:
    return f"runs instructions {call.first} to {call.last} of model {call.model}"


def refuse_training(name: str) -> Fault:
    """Why an instruction that trains does nothing."""
    return refused(
        f"trains a model, and plans do not train here ({name})", "train with `lamella train`, or leave it out"
    )


RUNNING = (0x80, opcodes.RUN_BLOCK, opcodes.RUN_PARALLEL)
"""Instructions that run models."""
TRAINING: Mapping[int, str] = MappingProxyType(
    {opcodes.TRAIN_STEP: "a step", 0x83: "gradients set to 0", 0x85: "weights saved"}
)
"""Instructions that train models, with what they would do."""
