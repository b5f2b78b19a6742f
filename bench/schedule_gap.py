"""How far list scheduling is from the shortest schedule, on random programs of at most nine task instances.

python -m bench.schedule_gap [programs]
"""

from __future__ import annotations

import sys

from lamella.plan.timing import simulate
from tests.support.plan.timing.optimum import find_optimum
from tests.support.plan.timing_plans import RandomPlan

FEWEST, MOST = 3, 9


def measure_gaps(programs: int) -> list[float]:
    """Cycles of the list schedule over the optimum, less one, for so many random programs."""
    gaps: list[float] = []
    seed = 0
    while len(gaps) < programs:
        seed += 1
        plan = RandomPlan(seed, tasks=MOST, trips=3, limits=False).plan()
        if FEWEST <= plan.instances() <= MOST:
            cycles = simulate(plan).cycles
            gaps.append(cycles / find_optimum(plan, cycles) - 1)
    return gaps


def main() -> None:
    """Print the mean and the worst gap."""
    programs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    gaps = measure_gaps(programs)
    optimal = sum(gap == 0 for gap in gaps)
    print(f"{programs} programs of {FEWEST} to {MOST} task instances")
    print(
        f"optimal {optimal} ({optimal / programs:.1%}), mean gap {sum(gaps) / programs:.2%}, worst {max(gaps):.1%}"
    )


if __name__ == "__main__":
    main()
