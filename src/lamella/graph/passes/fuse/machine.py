"""The ceilings of a machine, as far as fusion weighs them against each other."""

from __future__ import annotations

from lamella.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured ceilings of one core: what a round trip through memory costs in computation."""

    gflops: float = 60.0
    """Floating-point operations of elementwise code, in 10⁹ a second."""
    bandwidth: float = 12.0
    """Memory traffic in 10⁹ bytes a second."""
    cache_bandwidth: float = 60.0
    """Traffic of what the second-level cache holds, in 10⁹ bytes a second."""
    cache: int = 1 << 20
    """Bytes of the second-level cache."""
    launch: float = 0.5
    """Microseconds that one more kernel costs."""
    joins_views: bool = False
    """Whether what only moves elements is part of the kernel that reads them, wherever it can be."""

    vectors: int = 0
    """Vectors up to which a product goes along the rows of its matrix: a norm of them, and a gate, are part of it."""

    joins_gradients: bool = False
    """Whether the way back through an attention is one group: its kernels make scores again and keep none."""

    def seconds(self, size: int) -> float:
        """The time to move bytes once."""
        rate = self.cache_bandwidth if size <= self.cache // 2 else self.bandwidth
        return size / rate * 1e-9

    def compute(self, flops: float) -> float:
        """The time of floating-point operations."""
        return flops / self.gflops * 1e-9


DEFAULT_MACHINE = Machine()
GPU = Machine(joins_views=True, vectors=7, joins_gradients=True)
"""A GPU: what a kernel costs that only moves elements is its launch."""
