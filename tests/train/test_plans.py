"""Plans of NAC applications that train their model: against torch, and only where that is allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import lamella
from lamella.cli import lamella as main
from lamella.graph.data import read_safetensors
from tests.support.backend.mep.fakes import assembled

PLAN = """
RES_LOAD_MODEL(0, 0)
RES_LOAD_DATAFILE(1, 2, 1)
RES_LOAD_DATAFILE(2, 2, 2)
SRC_CONSTANT(3, 3)
SRC_CONSTANT(4, 4)
SRC_CONSTANT(7, 5)
SRC_CONSTANT(6, 3)
FLOW_LOOP_START(4)
MODEL_ZERO_GRAD(0)
MODEL_TRAIN_STEP(0, LOSS, [1], [2], 5, 3, 6, HEAD, 0)
FLOW_LOOP_END()
MODEL_RUN_STATIC(0, [1], [8])
MODEL_SAVE_WEIGHTS(0, 7, 0)
EXEC_RETURN([5, 6, 8])
0 = "self"
1 = "x.npy"
2 = "y.npy"
3 = 0.1
4 = 3
5 = "trained.safetensors"
6 = "0.weight"
"""


def run(folder: Path, *words: str, fails: bool = False) -> dict[str, object]:
    """What the plan of the application says."""
    allow = [item for word in ("read", "write") for item in ("--allow", f"{word}={folder}")]
    done = CliRunner().invoke(main, ["run", str(folder / "app.nacs"), "--plan", *allow, *words, "--json"])
    assert (done.exit_code != 0) == fails, done.output
    found: dict[str, object] = json.loads(done.output)
    return found


@pytest.mark.parametrize(("loss", "head"), [(0, 0), (1, 0), (0, 6)])
def test_a_plan_trains(loss: int, head: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    x = torch.randn(5, 4)
    y = torch.randn(5, 3) if loss else torch.tensor([0, 2, 1, 1, 0])
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", y.numpy())
    plan = assembled(PLAN.replace("LOSS", str(loss)).replace("HEAD", str(head)))
    model: Any = lamella.lower(lamella.from_torch(module, (x,)), "nac")
    file = replace(model.file, header=replace(model.file.header, version=plan.header.version))
    lamella.save(replace(model, file=replace(file, orchestrator=plan.orchestrator)), tmp_path / "app.nacs")
    refused = run(tmp_path, fails=True)
    assert "--allow train" in json.dumps(refused)
    returned = run(tmp_path, "--allow", "train")["returned"]
    trained = [module[0].weight] if head else list(module.parameters())
    rule = torch.optim.SGD(trained, lr=0.1)
    compare = torch.nn.functional.mse_loss if loss else torch.nn.functional.cross_entropy
    for _ in range(3):
        before = module(x)
        value = compare(before, y)
        module.zero_grad()
        value.backward()
        rule.step()
    assert isinstance(returned, list)
    assert returned[0] == pytest.approx(value.item(), rel=1e-5)
    stored = read_safetensors(tmp_path / "trained.safetensors")
    assert set(stored) == {name for name, _ in module.named_parameters()}
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(stored[name], parameter.detach().numpy(), rtol=1e-5, atol=1e-6)
