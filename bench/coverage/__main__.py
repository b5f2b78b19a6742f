"""Cover hundreds of modules, each in a process of its own; what was found out is kept, and it goes on from there.

usage: python -m bench.coverage [--only PATTERN] [--limit N] [--patience S] [--jobs N] [--again] [--list] [--time]
Small modules are compared with eager mode on three backends; `--time` takes larger ones and times them against it.
Results are lines of JSON in build/bench/agreement.jsonl (times: coverage.jsonl); the summary is of all that match.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import re
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

import torch
import torch._dynamo
import torch.export

from bench.coverage.agreement import AGREEMENT, BACKENDS, agree, known_results, table
from bench.coverage.one import Facts, cover
from bench.coverage.zoo import names, small_names
from bench.exports import FOLDER

TIMES = FOLDER / "coverage.jsonl"
SHORT_MS = 2.0
"""Eager runs shorter than this measure the overhead of a call, and are told apart."""
MOST_BYTES = 10 << 30
"""The memory that a module may address: what is larger is no small module."""
Work = Callable[[str], Facts]


def run_one(name: str, work: Work, patience: float) -> Facts:
    """What is found out about a module in a process of its own, forked so that packages are loaded once."""
    forking = multiprocessing.get_context("fork")
    receiver, sender = forking.Pipe(duplex=False)
    process = forking.Process(target=_cover_into, args=(work, name, sender))
    process.start()
    sender.close()
    try:
        found: Facts = (
            receiver.recv() if receiver.poll(patience) else _failed(name, f"it took more than {patience:g} s")
        )
    except EOFError:
        process.join()
        found = _failed(name, f"its process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()
    return found


def _cover_into(work: Work, name: str, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    sender.send(work(name))


def _failed(name: str, problem: str) -> Facts:
    return {"name": name, "stage": "?", "problem": problem}


# --- the summary --------------------------------------------------------------------------------------------


def told(facts: Facts) -> str:
    """One line about a module."""
    if "problem" in facts:
        return f"{facts['name']:44} {facts['stage']}: {facts['problem'][:120]}"
    if "ratio" not in facts:
        return f"{facts['name']:44} agrees: " + "  ".join(f"{item} {facts[item]:.0e}" for item in BACKENDS)
    times = f"eager {facts['eager_ms']:9.2f} ms  ours {facts['ours_ms']:9.2f} ms  ratio {facts['ratio']:6.2f}"
    wrong = "" if facts["agrees"] else f"  DIFFERS by {facts['difference']:.1e}"
    return f"{facts['name']:44} {times}{wrong}"


def summary(rows: Sequence[Facts]) -> Iterator[str]:
    """Geometric means by source, the worst ten, and what failed, by reason."""
    timed = [row for row in rows if "ratio" in row]
    long = [row for row in timed if row["eager_ms"] >= SHORT_MS]
    wrong = sum(not row["agrees"] for row in timed)
    yield f"{len(rows)} modules: {len(timed)} ran, {wrong} of them with other numbers, {len(rows) - len(timed)} failed"
    for source in sorted({row["name"].partition(":")[0] for row in long}):
        yield _mean(source, [row for row in long if row["name"].startswith(f"{source}:")])
    if long:
        yield _mean(f"all of at least {SHORT_MS:g} ms", long)
    if len(timed) > len(long):
        yield _mean("shorter ones", [row for row in timed if row not in long])
    yield "worst ten:"
    for row in sorted(long, key=lambda item: -item["ratio"])[:10]:
        yield f"  {told(row)}"
    reasons = Counter(_reason(row) for row in rows if "problem" in row)
    for reason, count in reasons.most_common():
        yield f"{count:4} × {reason}"


def _mean(what: str, rows: Sequence[Facts]) -> str:
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    above = sum(ratio > 1.5 for ratio in ratios)
    return f"{what:24} {len(rows):4} modules, geometric mean of ours ÷ eager {mean:.2f}, {above} above 1.5"


def _reason(row: Facts) -> str:
    return f"{row['stage']}: {re.sub(r'[0-9]+', '#', row['problem'])[:150]}"


def main(arguments: Sequence[str]) -> None:
    """Cover what is asked for and not known yet."""
    parser = argparse.ArgumentParser(prog="bench.coverage", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="modules whose name has this in it, a regular expression")
    parser.add_argument("--limit", type=int, default=0, help="so many at most")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds until a module is given up")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="what is known already, too")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--time", action="store_true", help="larger modules, timed against eager mode")
    wanted = parser.parse_args(arguments)
    drawn, work, path = (names, cover, TIMES) if wanted.time else (small_names, agree, AGREEMENT)
    listed = [name for name in drawn() if re.search(wanted.only, name)]
    if wanted.list:
        print(*listed, sep="\n")
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = known_results(path)
    waiting = [name for name in listed if wanted.again or name not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(wanted.jobs) as pool, path.open("a", encoding="utf-8") as file:
        run = partial(run_one, work=work, patience=wanted.patience)
        for facts in pool.map(run, waiting[: wanted.limit or None]):
            file.write(json.dumps(facts) + "\n")
            file.flush()
            print(told(facts), flush=True)
    known = known_results(path)
    rows = [known[name] for name in listed if name in known]
    print(*(summary(rows) if wanted.time else table(rows)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
