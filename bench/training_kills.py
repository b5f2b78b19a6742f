"""Fault injection of training: kill −9 at random moments, always resumable, never a torn file.

    python -m bench.training_kills [KILLS]        50 by default; prints one line

The model is a small one of the library with random weights; the judge is the same run that nobody killed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.support.train.kills import Campaign, CampaignResult

STEPS = 80
SIZES = (
    "vocab_size=64",
    "d_model=32",
    "n_layers=1",
    "num_heads=2",
    "num_kv_heads=1",
    "d_ff=64",
    "max_seq=32",
)


def main() -> None:
    """Run the campaign."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.module").write_text(_text())
        np.save(folder / "tokens.npy", np.random.default_rng(0).integers(0, 64, 4000))
        campaign = Campaign(folder / "net.module", folder / "tokens.npy", folder, steps=STEPS, seed=1)
        found = campaign.run(kills, _tell)
    equal = "equal" if found.is_equal else "OTHER NUMBERS"
    sys.stdout.write(
        f"{found.kills} kills, {found.resumable} resumable, {len(found.torn)} torn files, "
        f"{len(found.resumed)} runs to the end, their numbers are {equal}\n"
    )
    sys.exit(0 if found.is_equal and not found.torn and found.resumable == found.kills else 1)


def _tell(found: CampaignResult) -> None:
    """How far the campaign is."""
    sys.stderr.write(f"{found.kills} kills, {found.resumable} resumable, {len(found.torn)} torn files\n")


def _text() -> str:
    """A model of the library with other defaults."""
    sizes = ",\n".join(f"  {item.replace('=', ': int = ')}" for item in SIZES)
    return f'from std.models.llama import Llama\n\nmodel Net(\n{sizes}\n) extends Llama:\n  """A small Llama."""\n'


if __name__ == "__main__":
    main()
