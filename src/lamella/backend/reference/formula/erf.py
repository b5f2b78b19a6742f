"""The error function, which NumPy has not: two Chebyshev series, good to the last bits of a double."""

from __future__ import annotations

import numpy as np

from lamella.base.arrays import Array

_NEAR_END, _FAR_END, _MIDDLE = 1.5, 6.0, 2.0
# erf(x) / x, as a series in x² over [0, 1.5²].
_NEAR = (
    *(0.851089471310623, -0.2378512126782037, 0.03469122300310841, -0.004264102804485269),
    *(0.0004409197933299432, -3.901387128623381e-05, 3.005756784960929e-06, -2.0467950137813437e-07),
    *(1.247436826254426e-08, -6.875751819093192e-10, 3.45768610393445e-11, -1.598235818776436e-12),
    *(6.833570402307017e-14, -2.7176425140092373e-15, 1.0100781017991405e-16, -3.52341093596377e-18),
)
# (1 - erf(x)) · exp(x²), as a series in (x - 2) / (x + 2) over [1.5, 6]; beyond it a double is 1.
_FAR = (
    *(0.1967652342087633, -0.11379523161988798, 0.010403692607749223, -0.0006103349962023126),
    *(1.212989620645114e-05, 1.1460137795870853e-06, -6.486758686902113e-08, -3.745595395031941e-09),
    *(2.8341397624473485e-10, 2.116787758596006e-11, -1.119908849113571e-12, -1.5241080839412388e-13),
    *(1.7182845513243109e-15, 1.0701760095930372e-15, 3.879011299669143e-17, -5.68960837350124e-18),
)


BLOCK = 4096
"""Elements that are computed at once: few enough for all terms to stay in the nearest cache."""


def erf(values: Array) -> Array:
    """The error function of each element, computed in double precision and rounded once."""
    found = np.empty(values.shape, values.dtype)
    given, taken = np.ravel(values), found.reshape(-1)
    for start in range(0, given.size, BLOCK):
        taken[start : start + BLOCK] = _erf(np.asarray(given[start : start + BLOCK], np.float64))
    return found


def _erf(wide: Array) -> Array:
    size = np.minimum(np.abs(wide), _FAR_END)
    found = size * _series(_NEAR, size * size, 0.0, _NEAR_END**2)
    far = np.flatnonzero(~(size < _NEAR_END))
    if far.size:
        away = size[far]
        ends = [(end - _MIDDLE) / (end + _MIDDLE) for end in (_NEAR_END, _FAR_END)]
        tail = _series(_FAR, (away - _MIDDLE) / (away + _MIDDLE), *ends) * np.exp(-away * away)
        found[far] = 1.0 - tail
    return np.asarray(np.copysign(found, wide))


def _series(factors: tuple[float, ...], place: Array, low: float, high: float) -> Array:
    """The sum of a Chebyshev series over an interval, by Clenshaw's recurrence."""
    scaled = (2.0 * place - (low + high)) / (high - low)
    twice = 2.0 * scaled
    last, before = np.zeros_like(scaled), np.zeros_like(scaled)
    spare = np.empty_like(scaled)
    for factor in factors[:0:-1]:
        np.multiply(twice, last, out=spare)
        np.subtract(spare, before, out=spare)
        np.add(spare, factor, out=spare)
        last, before, spare = spare, last, before
    return np.asarray(scaled * last - before + factors[0])
