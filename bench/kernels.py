"""Measure the kernels of the tensor language beside torch, MKL, oneDNN, OpenBLAS, onnxruntime and a plain copy."""

from __future__ import annotations

import os

import torch

from bench import kernels_compile, kernels_gemm, kernels_groups, kernels_rows, kernels_small
from bench.contest import Report

PARTS = (*kernels_gemm.PARTS, *kernels_small.PARTS, *kernels_rows.PARTS, *kernels_groups.PARTS)


def measure(quick: bool) -> None:
    """Everything about kernels: on one thread, then on two where there are two processors."""
    kernels_compile.measure(quick)
    torch.set_grad_enabled(False)
    report = Report(0.15 if quick else 0.8)
    for threads in (1, 2)[: len(os.sched_getaffinity(0))]:
        torch.set_num_threads(threads)
        report.threads = threads
        print(f"\n{threads} thread{'s' * (threads > 1)}: rates, and ratios to the best peer of the same run")
        load = os.getloadavg()[0]
        report.judged = threads == 1 or load <= threads + 1
        if not report.judged:
            print(f"other work keeps the processors busy (load {load:.1f}): these ratios are not judged")
        for part in PARTS:
            part(report, quick)
    report.finish()
