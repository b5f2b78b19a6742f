"""What a document sees: the devices and type families of its file and of the files it includes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.base.suggest import nearest
from lamella.lang.nem.families import Variants
from lamella.lang.nem.nodes import Device, Document, TypeFamily

BASELINE = "nem_baseline_1.0.nem"
SHIPPED = MappingProxyType(
    {
        "nem_baseline_1_0": BASELINE,
        "npm_lite": "npm_lite.nem",
        "npm_mid": "npm_mid.nem",
        "npm_pro": "npm_pro.nem",
        "npm_pro_x1": "npm_pro.nem",
    }
)
"""The devices that come with the package, and their files."""
FILE_ALIASES = MappingProxyType({"npm_baseline_1.0.nem": BASELINE})
LONGEST_CIRCLE = 8
DEVICE_ALIASES = MappingProxyType({"npm_baseline_1_0": "nem_baseline_1_0"})


@dataclass(frozen=True, slots=True)
class Library:
    """A document and what it sees."""

    document: Document
    source: Source
    declarations: tuple[TypeFamily | Device, ...]
    """Everything declared in the file and its includes, in the order of definition, each name once."""
    devices: Mapping[str, Device]
    families: Mapping[str, TypeFamily]
    """By name; the families of the baseline are always among them."""
    variants: Variants
    """The legal type combinations that the families stand for."""
    findings: tuple[Diagnostic, ...]
    """What was found while reading the files and the families."""
    broken: frozenset[str] = frozenset()
    """Names of declarations that could not be read; nothing more is said of them."""
    complete: bool = True
    """Whether every include was read, so that an unknown name is really unknown."""
    limits: Limits = DEFAULT
    wanted: str = ""
    """The device that the caller chose by name."""
    target: Library | None = None
    """The file that the caller or the program's directive names for its device."""

    def device(self, name: str) -> Device | None:
        """A visible device by its name or by the name it is also known by."""
        return self.devices.get(name) or self.devices.get(DEVICE_ALIASES.get(name, name))

    def may_know(self, name: str) -> bool:
        """Whether a name may be one of those that could not be read."""
        return not self.complete or name in self.broken

    @property
    def own_devices(self) -> tuple[Device, ...]:
        """The devices that the document itself declares."""
        return tuple(item for item in self.document.declarations if isinstance(item, Device))


def show_circle(names: Sequence[str]) -> str:
    """`a -> b -> a`; the middle of a long circle is left out."""
    circle = [*names, names[0]]
    if len(circle) > LONGEST_CIRCLE:
        circle = [*circle[:3], f"… {len(circle) - 6} more …", *circle[-3:]]
    return " -> ".join(circle)


def device_hint(device: str, known: Iterable[str]) -> str:
    """The known device that a misspelt name is close to."""
    close = nearest(device, list(known)[:1000])
    return f"did you mean '{close[0]}'?" if close else ""
