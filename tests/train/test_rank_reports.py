"""What is told of ranks before they run is what they do then; what they see is what they have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.errors import InputError
from lamella.cli import lamella as command
from lamella.pipeline.bench.work import Work
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer, trainable
from lamella.train.ranks.ledger import Await, StageLedger, StepLedger, Transfer, read_ledger
from lamella.train.ranks.mesh import Mesh, read_mesh
from lamella.train.ranks.pipeline import StageTrainer
from lamella.train.ranks.timeline import LinkModel, read_link, simulate_step
from lamella.train.ranks.trainer import RankTrainer, World
from lamella.train.ranks.transport import Threads, run_threads
from tests.support.train.ranks import MIXED, SHARDED, STAGED, STREAMED, TEXT, batch, source


class Counted(Threads):
    """A thread that counts what it exchanges: bytes of what is exchanged, as the ledger counts them."""

    def __init__(self, place: Threads) -> None:
        super().__init__(place._meeting, place.rank)
        self.found: Counter[tuple[str, int]] = Counter()

    def all_reduce(self, array: np.ndarray, group: Sequence[int]) -> np.ndarray:
        self.found["all_reduce", array.nbytes] += len(group) > 1
        return super().all_reduce(array, group)

    def all_gather(self, array: np.ndarray, group: Sequence[int], dim: int) -> np.ndarray:
        self.found["all_gather", array.nbytes * len(group)] += 1
        return super().all_gather(array, group, dim)

    def reduce_scatter(self, array: np.ndarray, group: Sequence[int], dim: int) -> np.ndarray:
        self.found["reduce_scatter", array.nbytes] += 1
        self.found["all_reduce", array.nbytes] -= 1  # that is how threads do it
        return super().reduce_scatter(array, group, dim)

    def all_to_all(self, array: np.ndarray, group: Sequence[int], dim: int, to: int) -> np.ndarray:
        self.found["all_to_all", array.nbytes] += 1
        self.found["send", array.nbytes // len(group)] -= len(group) - 1  # that is how threads do it
        return super().all_to_all(array, group, dim, to)

    def send(self, array: np.ndarray, rank: int) -> None:
        self.found["send", array.nbytes] += 1
        super().send(array, rank)


CASES = {
    "dp=2": (TEXT, "B=8"),
    "tp=2": (SHARDED, "B=8"),
    "dp=2,tp=2": (SHARDED, "B=8"),
    "pp=2": (STAGED, "B=8"),
    "ep=2": (MIXED, "B=8,T=2"),
    "dp=2,ep=1": (STREAMED, "B=8"),
}


@pytest.mark.parametrize("mesh", CASES)
def test_ranks_exchange_what_was_told_before(tmp_path: Path, mesh: str) -> None:
    text, shape = CASES[mesh]
    made = source(tmp_path, text)
    extents = {name: int(size) for name, size in (item.split("=") for item in shape.split(","))}
    ledger = read_ledger(tmp_path / "net.module", Options(ranks=mesh, shape=extents))
    read = read_mesh(mesh)
    kind = StageTrainer if read.pp > 1 else RankTrainer
    given = batch(0, *([2] if "T" in extents else []))
    given["x"] = given["x"].astype(np.float32)

    def work(place: Threads) -> object:
        counted = Counted(place)
        trainer = kind(made, StepSettings("sgd"), "reference", Options(), World(read, counted))
        counted.found.clear()
        trainer.step(given, 0.1)
        return counted.found, trainer.plan.copies if isinstance(trainer, StageTrainer) else {}

    found: list[tuple[Counter[tuple[str, int]], dict[tuple[int, int], tuple[str, ...]]]]
    found = run_threads(read.size, work)  # type: ignore[assignment]
    for rank, (counts, copies) in enumerate(found):
        stage = read.position(rank)["pp"]
        told: Counter[tuple[str, int]] = Counter()
        for item, times in ledger.stages[stage].transfers(ledger.parts):
            told[item.kind, item.size] += times
        told["send", 256] += sum(len(names) for (sender, _), names in copies.items() if sender == stage)
        # Losses are summed too, as one number or two.
        assert {key: count for key, count in counts.items() if count and key[1] > 16} == {
            key: count for key, count in told.items() if count
        }


# --- what ranks see ---------------------------------------------------------------------------------------------


def seen(trainer: Trainer) -> list[np.ndarray]:
    """What a hook sees in one step."""
    found: list[np.ndarray] = []
    trainer.register_hook("AfterMLPActivation", lambda array, layer, stream: found.append(np.array(array)))
    trainer.step(batch(0), 0.1)
    return found


def hooked(folder: Path, text: str) -> Callable[[Mesh], list[list[np.ndarray]]]:
    made = source(folder, text.replace("-> bent", "-> bent @hook(AfterMLPActivation)"))
    settings, options = StepSettings("sgd", dtype="f64"), Options(dtype="f64")

    def run(mesh: Mesh) -> list[list[np.ndarray]]:
        if mesh.size == 1:
            return [seen(Trainer(made, settings, "reference", options))]
        kind = StageTrainer if mesh.pp > 1 else RankTrainer
        work = lambda place: seen(kind(made, settings, "reference", options, World(mesh, place)))  # noqa: E731
        return run_threads(mesh.size, work)  # type: ignore[return-value]

    return run


def test_hooks_see_the_slices_of_their_rank(tmp_path: Path) -> None:
    run = hooked(tmp_path, SHARDED)
    ((whole,),) = run(Mesh())
    (first,), (second,) = run(Mesh(tp=2))
    assert first.shape == (8, 6)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-12)


def test_hooks_see_the_tensors_of_their_stage(tmp_path: Path) -> None:
    run = hooked(tmp_path, STAGED)
    ((whole,),) = run(Mesh())
    first, second = run(Mesh(pp=2))
    assert not second
    np.testing.assert_allclose(np.concatenate(first), whole, rtol=1e-12)


# --- the time line ----------------------------------------------------------------------------------------------


def stage(number: int, stages: int, seconds: float) -> StageLedger:
    """A stage whose ways forward and back take so long, with links to its neighbours."""
    work = (Work(0, int(seconds)),)
    sent = [Transfer("send", "pp", stages, "x", "forward", 0, stages=(number, number + 1))]
    back = [Transfer("send", "pp", stages, "d_x", "backward", 0, stages=(number, number - 1))]
    return StageLedger((), work, work, tuple(sent * (number + 1 < stages)), tuple(back * (number > 0)), ())


@given(st.integers(1, 5), st.integers(1, 8), st.integers(1, 9))
def test_a_pipeline_of_equal_stages_takes_its_parts_and_a_bubble(stages: int, parts: int, work: int) -> None:
    """So long as the literature says of one forward, one back: (parts + stages - 1) · (forward + backward)."""
    made = tuple(stage(number, stages, work) for number in range(stages))
    ledger = StepLedger("net", Mesh(pp=stages), parts, {}, made)
    found = simulate_step(ledger, LinkModel(1.0, 1.0, 1.0, 0.0))
    assert found.seconds == pytest.approx((parts + stages - 1) * 2 * work)
    assert found.busy(0, "compute") == pytest.approx(parts * 2 * work)


@pytest.mark.parametrize(("is_later", "seconds"), [(False, 20.0), (True, 15.0)])
def test_a_sum_that_goes_on_is_hidden_by_what_is_computed(is_later: bool, seconds: float) -> None:
    total = Transfer("all_reduce", "tp", 2, "y", "forward", 10, 7, is_later)
    ledger = StageLedger((), (total, Work(0, 5), Await(7), Work(0, 5)), (), (), (), ())
    found = simulate_step(StepLedger("net", Mesh(tp=2), 1, {}, (ledger,)), LinkModel(1.0, 1.0, 1.0, 0.0))
    assert found.seconds == seconds


def test_rings_take_their_rounds() -> None:
    link = LinkModel(bandwidth=1.0, latency=100.0)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
    found = {kind: link.transfer(Transfer(kind, "tp", 4, "y", "forward", 40)) for kind in kinds}
    assert found == {
        "all_reduce": 660.0,
        "all_gather": 330.0,
        "reduce_scatter": 330.0,
        "all_to_all": 330.0,
        "send": 140.0,
    }


@pytest.mark.parametrize("text", ["x=1", "flops=0", "bandwidth=nan", "latency=-1", "flops", "flops=inf"])
def test_texts_that_are_no_link_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_link(text)


def test_commands_tell_of_ranks(tmp_path: Path) -> None:
    path, page, trace = (str(tmp_path / name) for name in ("net.module", "a.html", "a.json"))
    Path(path).write_text(STAGED, encoding="utf-8")
    words = [path, "--ranks", "pp=2,tp=2", "--shape", "B=8"]
    shown = CliRunner().invoke(command, ["show", *words, "--json"])
    assert shown.exit_code == 0, shown.output
    first, second = json.loads(shown.stdout)["stages"]
    local = {item["path"]: item["local"] for item in (*first["parameters"], *second["parameters"])}
    assert local == {"up": [6, 8], "bias": [6], "down": [8, 6], "gate": [8, 8], "head": [6, 8]}
    assert [item["how"] for item in second["parameters"] if item["path"] == "gate"] == ["a copy of stage 0's"]
    simulated = CliRunner().invoke(command, ["sim", *words, "--json", "--html", page, "--trace", trace])
    assert simulated.exit_code == 0, simulated.output
    found = json.loads(simulated.stdout)
    assert found["seconds"] == max(item["end"] for item in found["events"]) > 0
    assert len(json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]) == len(found["events"]) + 2
    assert Path(page).read_text(encoding="utf-8").count("<rect") == len(found["events"])


def test_extents_that_are_not_said_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "net.module"
    path.write_text(SHARDED, encoding="utf-8")
    with pytest.raises(InputError, match="depends on B"):
        read_ledger(path, Options(ranks="tp=2"))
    assert trainable(path, Options()).policies["up"].mark.strategy == "column"
