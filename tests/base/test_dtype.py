"""Element types against NumPy's and ml_dtypes' own tables, and the words of the five languages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lamella.base import dtype as types
from lamella.base.arrays import element_type_of, numpy_dtype
from lamella.base.dtype import ALL, LANGUAGES, ElementType, Kind, component_of, find, find_in, name_in

Info = Callable[[np.dtype[Any]], Any]
INTEGERS: Info = ml_dtypes.iinfo
FLOATS: Info = ml_dtypes.finfo


@pytest.mark.parametrize("element", ALL, ids=str)
def test_ranges_are_those_of_the_array_types(element: ElementType) -> None:
    dtype = numpy_dtype(element)
    if element.is_integer:
        info = INTEGERS(dtype)
        assert (element.minimum, element.maximum) == (int(info.min), int(info.max))
    elif element.kind is Kind.BOOL:
        assert (element.minimum, element.maximum) == (0, 1)
    else:
        assert element.largest == float(FLOATS(numpy_dtype(component_of(element))).max)
        with pytest.raises(ValueError, match="integer range"):
            _ = element.maximum


@pytest.mark.parametrize("element", ALL, ids=str)
def test_bits_are_what_storage_takes(element: ElementType) -> None:
    bits = numpy_dtype(element).itemsize * 8
    assert element.bits == bits or (element.bits in (2, 4) and bits == 8)
    assert find(element.name) is element
    expected = types.I64 if element is types.INDEX else element
    assert element_type_of(numpy_dtype(element)) is expected


def test_foreign_array_types_have_no_element_type() -> None:
    assert element_type_of(np.dtype("U3")) is None
    assert element_type_of(np.dtype("datetime64[s]")) is None
    assert element_type_of(np.dtype(">f4")) is types.F32


def test_languages_name_their_types() -> None:
    for language, names in LANGUAGES.items():
        for name, element in names.items():
            assert find_in(language, name) is element
            assert find_in(language, name_in(language, element) or "") is element
        assert find_in(language, "no such type") is None
    assert " ".join(LANGUAGES["nem"]) == "i4 i8 i16 i32 u8 u16 u32 f16 bf16 f32"
    assert name_in("nem", types.F64) is None
    assert name_in("skriptnd", types.F32) == "real"
    assert find_in("skriptnd", "f32") is types.F32
    assert find_in("module", "fp8_e4m3") is types.F8E4M3
    assert list(LANGUAGES["nac"]).index("bool") == 9
    covered = {element for names in LANGUAGES.values() for element in names.values()}
    assert covered == set(ALL)


def test_complex_types_have_parts() -> None:
    assert component_of(types.C32) is types.F32
    assert component_of(types.C64) is types.F64
    assert component_of(types.I8) is types.I8


def test_types_limits_and_quantisation_do_not_load_numpy() -> None:
    modules = "cursor diagnostic dtype errors limits optional origin paths quant reader shape source writer"
    imports = ", ".join(f"lamella.base.{name}" for name in modules.split())
    program = f"import sys, {imports}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
