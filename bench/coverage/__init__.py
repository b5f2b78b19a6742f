"""Coverage: hundreds of modules of other people, exported, compared with eager mode, and timed against it."""

import os

# Read when torch is loaded: one thread, and no instructions of which its library only believes that they are there.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
