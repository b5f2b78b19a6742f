"""Random well-typed kernels run equal in the interpreter and as machine code.

`make test` runs the same 500 every time, `make fuzz` other ones, and more of them.
"""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given, seed, settings

from tests.support.differential.running import agree, execute, judge, read
from tests.support.strategies.tensor_programs import Kernel, kernels

SHARES = 10
"""So many tests that can run side by side."""
FIRST = time.time_ns() if "LAMELLA_FUZZ" in os.environ else 0


@pytest.mark.parametrize("share", range(SHARES))
def test_machine_code_computes_what_the_interpreter_does(share: int, mutations: int) -> None:
    @seed(FIRST + share)
    @settings(max_examples=mutations // (4 * SHARES), database=None)
    @given(kernels())
    def run(kernel: Kernel) -> None:
        program = read(kernel.text)
        agree(kernel, judge(kernel, program), execute(kernel, program))

    run()
