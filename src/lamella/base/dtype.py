"""The element types of all five languages, and what each language calls them."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from lamella.base.records import dataclass


class Kind(StrEnum):
    """What the bits of an element mean."""

    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one element of a tensor."""

    name: str
    bits: int
    kind: Kind
    largest: float = 0.0
    """The largest finite value of a floating type, or of the parts of a complex one."""

    def __str__(self) -> str:
        return self.name

    @property
    def is_integer(self) -> bool:
        """Whether it counts: signed or unsigned."""
        return self.kind is Kind.SIGNED or self.kind is Kind.UNSIGNED

    @property
    def is_float(self) -> bool:
        """Whether it is a real floating type."""
        return self.kind is Kind.FLOAT

    @property
    def minimum(self) -> int:
        """The smallest integer of the type; of bool it is 0."""
        self._must_count()
        return -(1 << (self.bits - 1)) if self.kind is Kind.SIGNED else 0

    @property
    def maximum(self) -> int:
        """The largest integer of the type; of bool it is 1."""
        self._must_count()
        if self.kind is Kind.BOOL:
            return 1
        return (1 << (self.bits - (self.kind is Kind.SIGNED))) - 1

    def _must_count(self) -> None:
        if not self.is_integer and self.kind is not Kind.BOOL:
            raise ValueError(f"{self.name} has no integer range")


BOOL = ElementType("bool", 8, Kind.BOOL)
I2 = ElementType("i2", 2, Kind.SIGNED)
I4 = ElementType("i4", 4, Kind.SIGNED)
I8 = ElementType("i8", 8, Kind.SIGNED)
I16 = ElementType("i16", 16, Kind.SIGNED)
I32 = ElementType("i32", 32, Kind.SIGNED)
I64 = ElementType("i64", 64, Kind.SIGNED)
INDEX = ElementType("index", 64, Kind.SIGNED)
U2 = ElementType("u2", 2, Kind.UNSIGNED)
U4 = ElementType("u4", 4, Kind.UNSIGNED)
U8 = ElementType("u8", 8, Kind.UNSIGNED)
U16 = ElementType("u16", 16, Kind.UNSIGNED)
U32 = ElementType("u32", 32, Kind.UNSIGNED)
U64 = ElementType("u64", 64, Kind.UNSIGNED)
F4E2M1 = ElementType("f4e2m1", 4, Kind.FLOAT, 6.0)
F8E4M3 = ElementType("f8e4m3", 8, Kind.FLOAT, 448.0)
F8E5M2 = ElementType("f8e5m2", 8, Kind.FLOAT, 57344.0)
F8E4M3FNUZ = ElementType("f8e4m3fnuz", 8, Kind.FLOAT, 240.0)
F8E5M2FNUZ = ElementType("f8e5m2fnuz", 8, Kind.FLOAT, 57344.0)
F16 = ElementType("f16", 16, Kind.FLOAT, 65504.0)
BF16 = ElementType("bf16", 16, Kind.FLOAT, float.fromhex("0x1.fep+127"))
F32 = ElementType("f32", 32, Kind.FLOAT, float.fromhex("0x1.fffffep+127"))
F64 = ElementType("f64", 64, Kind.FLOAT, float.fromhex("0x1.fffffffffffffp+1023"))
C32 = ElementType("c32", 64, Kind.COMPLEX, F32.largest)
C64 = ElementType("c64", 128, Kind.COMPLEX, F64.largest)

ALL = (
    *(BOOL, I2, I4, I8, I16, I32, I64, INDEX, U2, U4, U8, U16, U32, U64),
    *(F4E2M1, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, BF16, F32, F64, C32, C64),
)
"""Every element type, once."""

_BY_NAME = MappingProxyType({item.name: item for item in ALL})


def _own_names(*types: ElementType) -> MappingProxyType[str, ElementType]:
    """A language that calls these types as we do."""
    return MappingProxyType({item.name: item for item in types})


LANGUAGES = MappingProxyType(
    {
        "nem": _own_names(I4, I8, I16, I32, U8, U16, U32, F16, BF16, F32),
        "tensor": _own_names(
            *(BOOL, I8, I16, I32, I64, INDEX, F8E4M3, F8E5M2, BF16, F16, F32, F64, C32, C64)
        ),
        "skriptnd": MappingProxyType(
            {
                **{"real": F32, "int": I64, "bool": BOOL},
                **_own_names(*(item for item in ALL if item not in (BOOL, INDEX))),
            }
        ),
        # The order is the order of NAC's type codes, 0 to 9.
        "nac": MappingProxyType(
            {
                **{"float32": F32, "float64": F64, "float16": F16, "bfloat16": BF16, "int32": I32},
                **{"int64": I64, "int16": I16, "int8": I8, "uint8": U8, "bool": BOOL},
            }
        ),
        "module": MappingProxyType(
            {
                **{
                    "bf16": BF16,
                    "fp64": F64,
                    "fp32": F32,
                    "fp16": F16,
                    "fp8_e4m3": F8E4M3,
                    "fp8_e5m2": F8E5M2,
                },
                **{"fp4_e2m1": F4E2M1, "int4": I4, "int8": I8, "int32": I32, "int64": I64, "bool": BOOL},
            }
        ),
    }
)
"""For each language, its names of element types."""


def find(name: str) -> ElementType | None:
    """The element type of one of our own names."""
    return _BY_NAME.get(name)


def find_in(language: str, name: str) -> ElementType | None:
    """The element type that a language calls by a name."""
    return LANGUAGES[language].get(name)


def name_in(language: str, element: ElementType) -> str | None:
    """What a language calls an element type, or None where it has no word for it."""
    return next((name for name, item in LANGUAGES[language].items() if item == element), None)


def component_of(element: ElementType) -> ElementType:
    """The type of the real part of a complex type; any other type itself."""
    return {"c32": F32, "c64": F64}.get(element.name, element)
