"""Quantised checkpoints: tensors that packages of quantisation store in parts, as the weights that they stand for.

A scheme knows which tensors belong to one weight, its shape, and how its codes lie in them. Codes that are linear, and
whose neighbours share a scale, stay codes up to the kernels, integers and reals of 8 bits alike; others become numbers
when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from pathlib import Path
from types import MappingProxyType

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.codes import E2M1, LOWEST_CODE, CodeForm, Codes, centred_codes, signed_codes, unpack_words
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import ElementType
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.bridge.hf_to_module.checkpoint import (
    Checkpoint,
    CheckpointTensor,
    CodedTensor,
    whole,
    wrong_file,
)
from lamella.lang.module.rules import mappings as rules

QUANTIZATION = "quantization_config"
Settings = Mapping[str, object]
Read = Callable[[str], Array]
"""The array of a part of a weight, by the name of the part."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight columns lies in each four bits of a word of AWQ, the lowest first."""
_WORD = 32


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors of one weight by what their names end with, and the settings of its scheme."""

    name: str
    parts: Mapping[str, CheckpointTensor]
    settings: Settings
    checkpoint: Checkpoint
    home: Path
    """The config, whose settings may be wrong."""

    @property
    def file(self) -> Path:
        """The file of its first part."""
        return self.checkpoint.files[next(iter(self.parts.values())).file].path

    def read(self, part: str) -> Array:
        """The array of a part."""
        return self.checkpoint.view(self.parts[part])

    def shape(self, part: str, rank: int) -> tuple[int, ...]:
        """The shape of a part that must have so many axes."""
        found = self.parts.get(part)
        if found is None:
            raise LamellaError([wrong_file(self.file, f"the codes of '{self.name[:200]}' have no '{part}'")])
        if len(found.shape) != rank:
            self.refuse(part, f"{rank} axes")
        return found.shape

    def expect(self, part: str, *shapes: tuple[int, ...]) -> None:
        """Leave with a finding where a part has none of the shapes that belong to the codes."""
        found = self.shape(part, len(self.parts[part].shape) if part in self.parts else 0)
        if found not in shapes:
            self.refuse(part, " or ".join(str(list(shape)) for shape in shapes))

    def refuse(self, part: str, wanted: str) -> None:
        """Leave with the finding that a part is not what its codes need."""
        entry = self.parts[part]
        found = f"{entry.dtype}{list(entry.shape)}"
        raise LamellaError([wrong_file(self.file, f"'{entry.name[:200]}' is {found}, not {wanted}")])

    def integer(self, key: str, default: int) -> int:
        """A setting that is a number."""
        found = self.settings.get(key, default)
        return found if isinstance(found, int) and not isinstance(found, bool) else default

    def coded(
        self, shape: tuple[int, ...], form: CodeForm | None, load: Callable[[Read], Codes | Array]
    ) -> CodedTensor:
        """The weight."""
        parts = tuple(self.parts.values())
        entry = replace(parts[0], name=self.name, dtype=types.F32, shape=shape)
        kind = str(self.settings.get("quant_method"))
        return CodedTensor(entry, parts, form, partial(load, self.read), kind)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to store weights: which endings of names belong to one, and what is made of a group of tensors."""

    endings: tuple[str, ...]
    """The first one marks a weight of this scheme."""
    make: Callable[[Group], CodedTensor | None]
    weight: str = ".weight"
    """What the name of the weight has where its parts have their endings."""
    unread: tuple[str, ...] = ()
    """Endings of tensors that speak of activations, which are not rounded here."""


def decode_checkpoint(
    checkpoint: Checkpoint, config: Mapping[str, object], home: Path
) -> tuple[Checkpoint, tuple[Diagnostic, ...]]:
    """The checkpoint with the weights that its codes stand for, and what there is to say; itself where it has none."""
    settings = config.get(QUANTIZATION)
    schemes = schemes_of(settings) if isinstance(settings, dict) else ()
    tensors, coded = dict(checkpoint.tensors), dict[str, CodedTensor]()
    unread: list[str] = []
    for scheme in schemes:
        for group in _groups(checkpoint, scheme, settings, home):
            found = scheme.make(group)
            if found is None:
                continue
            for part in group.parts.values():
                tensors.pop(part.name, None)
            tensors[found.entry.name] = found.entry
            coded[found.entry.name] = found
        spare = [name for name in tensors if name.endswith(scheme.unread or ("\0",))]
        unread += [name for name in spare if tensors.pop(name, None) is not None]
    notes = []
    if unread:
        what = f"'{unread[0][:100]}'" + (f" and {len(unread) - 1} like it" if len(unread) > 1 else "")
        why = "activations are not rounded, so what they are rounded with is not needed"
        notes.append(rules.IGNORED.at(whole(home), what=what, why=why))
    return replace(checkpoint, tensors=MappingProxyType(tensors), coded=MappingProxyType(coded)), tuple(notes)


def schemes_of(settings: Settings) -> tuple[Scheme, ...]:
    """The schemes that a config asks for; none where it is not known here."""
    method = settings.get("quant_method")
    if method == "compressed-tensors" and settings.get("format") not in COMPRESSED:
        return ()
    if method == "awq" and settings.get("version", "gemm") not in ("gemm", "GEMM"):
        return ()
    return SCHEMES.get(method, ()) if isinstance(method, str) else ()


def _groups(checkpoint: Checkpoint, scheme: Scheme, settings: object, home: Path) -> Iterator[Group]:
    mark = scheme.endings[0]
    for name in checkpoint.tensors:
        if not name.endswith(mark):
            continue
        stem = name.removesuffix(mark)
        names = {ending.lstrip("._"): f"{stem}{ending}" for ending in scheme.endings}
        parts = {key: checkpoint.tensors[full] for key, full in names.items() if full in checkpoint.tensors}
        given = settings if isinstance(settings, dict) else {}
        yield Group(f"{stem}{scheme.weight}", parts, given, checkpoint, home)


# --- GPTQ and AWQ: words of 32 bits along the inputs, or along the outputs --------------------------------------


def _gptq(group: Group) -> CodedTensor:
    bits = group.integer("bits", 4)
    if bits not in (2, 3, 4, 8):
        raise LamellaError([wrong_file(group.home, f"GPTQ has codes of 2, 3, 4 and 8 bits, not of {bits}")])
    words, outputs = group.shape("qweight", 2)
    inputs = words * _WORD // bits
    count, _ = group.shape("scales", 2)
    group.expect("scales", (count, outputs))
    group.expect("qzeros", (count, -(-outputs * bits // _WORD)))
    # Files of the first version store each zero point less one.
    more = 0 if group.settings.get("checkpoint_format") == "gptq_v2" else 1

    def zeros(read: Read) -> Array:
        found = unpack_words(read("qzeros"), bits, outputs).astype(np.int16) + more
        return (found & (1 << bits) - 1).T

    def load(read: Read) -> Codes:
        codes = unpack_words(np.ascontiguousarray(read("qweight").T), bits, inputs)
        scales = read("scales").astype(np.float32).T
        return _zeroed(codes, bits, scales, zeros(read))

    return _grouped(group, (outputs, inputs), bits, count, zeros, load)


def _awq(group: Group) -> CodedTensor:
    bits = group.integer("bits", 4)
    if bits != 4:
        raise LamellaError([wrong_file(group.home, f"AWQ has codes of 4 bits, not of {bits}")])
    inputs, words = group.shape("qweight", 2)
    outputs = words * len(AWQ_ORDER)
    count, _ = group.shape("scales", 2)
    group.expect("scales", (count, outputs))
    group.expect("qzeros", (count, words))
    order = np.argsort(AWQ_ORDER)

    def columns(packed: Array) -> Array:
        found = unpack_words(packed, bits, outputs)
        lead = found.shape[:-1]
        return found.reshape(*lead, -1, len(AWQ_ORDER))[..., order].reshape(*lead, outputs)

    def zeros(read: Read) -> Array:
        return columns(read("qzeros")).astype(np.int16).T

    def load(read: Read) -> Codes:
        scales = read("scales").astype(np.float32).T
        return _zeroed(columns(read("qweight")).T, bits, scales, zeros(read))

    return _grouped(group, (outputs, inputs), bits, count, zeros, load)


def _grouped(
    group: Group,
    shape: tuple[int, int],
    bits: int,
    count: int,
    zeros: Callable[[Read], Array],
    load: Callable[[Read], Codes],
) -> CodedTensor:
    """A weight whose inputs share scales in their order, or by the index that says which scale each of them has."""
    inputs = shape[1]
    size = inputs // count if count and inputs % count == 0 else 0
    index = group.read("g_idx") if "g_idx" in group.parts else np.arange(inputs) // max(1, size)
    if index.shape != (inputs,) or (index.size and not 0 <= int(index.min()) <= int(index.max()) < count):
        group.refuse("g_idx", f"{inputs} numbers of {count} scales")
    if size and np.array_equal(index, np.arange(inputs) // size):
        middle = 1 << bits - 1
        form = CodeForm(_narrow(bits), size, bool(np.any(zeros(group.read) != middle)))
        return group.coded(shape, form, load)
    return group.coded(shape, None, lambda read: load(read).decode_by(index))


def _narrow(bits: int) -> ElementType:
    return types.I4 if bits <= 4 else types.I8


def _zeroed(codes: Array, bits: int, scales: Array, zeros: Array) -> Codes:
    """(code - zero) * scale."""
    if np.all(zeros == 1 << bits - 1):
        return centred_codes(codes, bits, scales)
    return signed_codes(codes, bits, scales, -zeros.astype(np.float32) * scales)


# --- bitsandbytes -----------------------------------------------------------------------------------------------


def _int8(group: Group) -> CodedTensor | None:
    outputs, inputs = group.shape("weight", 2)
    if group.parts["weight"].dtype != types.I8:
        return None
    group.expect("SCB", (outputs,))

    def load(read: Read) -> Codes:
        return Codes(read("weight"), read("SCB").astype(np.float32)[:, None] / np.float32(127))

    return group.coded((outputs, inputs), CodeForm(types.I8, inputs), load)


def _nf4(group: Group, kind: str) -> CodedTensor:
    """Sixteen numbers of a table, two codes in a byte, the first in its high half; scales may be codes themselves."""
    state = _state(group, f"weight.quant_state.bitsandbytes__{kind}")
    shape, block = _sizes(state.get("shape")), state.get("blocksize")
    total = int(np.prod(shape, dtype=object))
    if not shape or not isinstance(block, int) or block < 1 or group.parts["weight"].length * 2 != total:
        raise LamellaError(
            [wrong_file(group.file, f"the state of '{group.name[:200]}' does not fit its codes")]
        )
    count = -(-total // block)
    group.expect("weight.absmax", (count,))
    group.expect("weight.quant_map", (16,))
    nested, offset = state.get("nested_blocksize"), state.get("nested_offset", 0.0)
    if isinstance(nested, int) and nested > 0:
        group.expect("weight.nested_absmax", (-(-count // nested),))
        group.expect("weight.nested_quant_map", (256,))

    def scales(read: Read) -> Array:
        found = read("weight.absmax")
        if not isinstance(nested, int):
            return found.astype(np.float32)
        outer = np.repeat(read("weight.nested_absmax"), nested)[:count]
        more = np.float32(offset) if isinstance(offset, int | float) else np.float32(0)
        numbers: Array = read("weight.nested_quant_map")[found] * outer + more
        return numbers.astype(np.float32)

    numbers = tuple(map(float, group.read("weight.quant_map").astype(np.float32)))
    in_rows = len(shape) == 2 and shape[1] % block == 0

    def load(read: Read) -> Codes | Array:
        image = read("weight").reshape(-1).view(np.uint8)
        unsigned = np.stack([image >> 4, image & 15], axis=-1).reshape(shape)
        codes = (unsigned.view(np.int8) + np.int8(LOWEST_CODE)).astype(numpy_dtype(types.I4))
        if in_rows:
            return Codes(codes, scales(read).reshape(shape[0], -1), None, numbers)
        each = Codes(codes.reshape(-1), np.repeat(scales(read), block)[:total], None, numbers)
        return each.decode().reshape(shape)

    return group.coded(shape, CodeForm(types.I4, block, False, numbers) if in_rows else None, load)


def _state(group: Group, part: str) -> dict[str, object]:
    try:
        return decode_object(group.read(part).tobytes(), max_depth=8)
    except Malformed as problem:
        raise LamellaError([wrong_file(group.file, f"'{group.name[:200]}.{part[-40:]}' {problem}")]) from None


def _sizes(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, list) else ()
    fine = 0 < len(items) <= 8 and all(type(item) is int and 0 < item < 1 << 40 for item in items)
    return tuple(items) if fine else ()


# --- eight-bit floating numbers, and four-bit ones ------------------------------------------------------------------


_F8 = (types.F8E4M3, types.F8E5M2)
LEAST_GROUP = 16
"""Neighbours that share a scale, at least, where a block that ends inside a row is cut: fewer are not worth theirs."""


def _float8(group: Group, scale: str) -> CodedTensor | None:
    """Numbers of 8 bits times a scale: of the whole, of each row, or of each block of rows and columns."""
    if "weight" not in group.parts or group.parts["weight"].dtype not in _F8:
        return None
    outputs, inputs = group.shape("weight", 2)
    size = group.settings.get("weight_block_size")
    block = (*_sizes(size), 0, 0)[:2] if size is not None else (0, 0)
    if all(block):
        group.expect(scale, (-(-outputs // block[0]), -(-inputs // block[1])))
    else:
        group.expect(scale, (), (1,), (1, 1), (outputs, 1), (outputs,))

    columns = gcd(block[1], inputs) if all(block) else inputs
    kept = columns == inputs or columns >= LEAST_GROUP
    form = CodeForm(group.parts["weight"].dtype, columns) if kept else None

    def scales(read: Read) -> Array:
        """A scale for each row, or for each part of a row."""
        found = read(scale).astype(np.float32)
        if all(block):
            wide = found.repeat(block[0], 0)[:outputs].repeat(block[1] // columns, 1)
            return np.ascontiguousarray(wide[:, : inputs // columns])
        return np.ascontiguousarray(np.broadcast_to(found.reshape(-1, 1), (outputs, 1)))

    def load(read: Read) -> Codes | Array:
        codes = Codes(read("weight"), scales(read))
        return codes if form is not None else codes.decode()

    return group.coded((outputs, inputs), form, load)


def _mxfp4(group: Group) -> CodedTensor:
    """Matrices of experts, 32 neighbours along the inputs with a power of two; transformers has them transposed."""
    lead = group.shape("blocks", 4)
    experts, outputs, count, half = lead
    group.expect("scales", (experts, outputs, count))
    if half != 16:
        group.refuse("blocks", "blocks of 16 bytes")

    def load(read: Read) -> Array:
        image = read("blocks").view(np.uint8)
        codes = E2M1[np.stack([image & 15, image >> 4], axis=-1)]
        powers = np.ldexp(np.float32(0.5), read("scales").astype(np.int32) - 127)
        numbers = codes.reshape(experts, outputs, count, 32).astype(np.float32) * powers[..., None]
        found: Array = numbers.reshape(experts, outputs, count * 32).swapaxes(1, 2)
        return found

    return group.coded((experts, count * 32, outputs), None, load)


# --- compressed-tensors ---------------------------------------------------------------------------------------------


def _weights_of(group: Group) -> dict[str, object]:
    """What the first group of the config says of weights."""
    groups = group.settings.get("config_groups")
    first: object = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    found = first.get("weights") if isinstance(first, dict) else None
    return found if isinstance(found, dict) else {}


def _packed(group: Group) -> CodedTensor | None:
    if "weight_shape" not in group.parts:
        return None
    asked = _weights_of(group).get("num_bits", 4)
    bits = asked if isinstance(asked, int) and asked in (2, 3, 4, 8) else 0
    if not bits:
        raise LamellaError([wrong_file(group.home, f"codes are packed in 4 or 8 bits, not in {asked!s:.20}")])
    outputs, words = group.shape("weight_packed", 2)
    group.expect("weight_shape", (2,))
    rows, inputs = (int(item) for item in group.read("weight_shape"))
    each = _WORD // bits
    if rows != outputs or -(-inputs // each) != words:
        group.refuse("weight_packed", f"codes of {rows} rows of {inputs}")

    def codes(read: Read) -> Array:
        return unpack_words(read("weight_packed"), bits, inputs).astype(np.int16) - (1 << bits - 1)

    def zeros(read: Read) -> Array:
        packed = np.ascontiguousarray(read("weight_zero_point").T)
        return unpack_words(packed, bits, outputs).astype(np.int16).T - (1 << bits - 1)

    return _scaled(group, (outputs, inputs), bits, codes, zeros)


def _integers(group: Group) -> CodedTensor | None:
    if "weight" not in group.parts or group.parts["weight"].dtype != types.I8:
        return None
    outputs, inputs = group.shape("weight", 2)
    return _scaled(
        group, (outputs, inputs), 8, lambda read: read("weight"), lambda read: read("weight_zero_point")
    )


def _scaled(
    group: Group,
    shape: tuple[int, int],
    bits: int,
    codes: Callable[[Read], Array],
    zeros: Callable[[Read], Array],
) -> CodedTensor:
    """(code - zero) * scale, both signed, with a scale of the whole, of each row or of groups along a row."""
    outputs, inputs = shape
    stored = group.parts["weight_scale"].shape if "weight_scale" in group.parts else ()
    count = stored[1] if len(stored) == 2 else 1
    group.expect("weight_scale", (), (1,), (1, 1), (outputs, count))
    if count < 1 or inputs % count:
        group.refuse("weight_scale", f"groups of {inputs} inputs")
    has_zeros = "weight_zero_point" in group.parts

    def load(read: Read) -> Codes:
        scales = np.broadcast_to(read("weight_scale").astype(np.float32).reshape(-1, count), (outputs, count))
        offsets = -zeros(read).reshape(-1, count).astype(np.float32) * scales if has_zeros else None
        return Codes(codes(read).astype(numpy_dtype(_narrow(bits))), np.ascontiguousarray(scales), offsets)

    index = (
        group.read("weight_g_idx") if "weight_g_idx" in group.parts else np.arange(inputs) * count // inputs
    )
    if np.array_equal(index, np.arange(inputs) * count // inputs):
        return group.coded(shape, CodeForm(_narrow(bits), inputs // count, has_zeros), load)
    return group.coded(shape, None, lambda read: load(read).decode_by(index))


def _nvfp4(group: Group) -> CodedTensor | None:
    if "weight_global_scale" not in group.parts:
        return None
    outputs, half = group.shape("weight_packed", 2)
    inputs, count = 2 * half, half // 8
    group.expect("weight_scale", (outputs, count))
    group.expect("weight_global_scale", (1,), ())

    def load(read: Read) -> Codes:
        image = read("weight_packed").view(np.uint8)
        codes = E2M1[np.stack([image & 15, image >> 4], axis=-1)].reshape(outputs, inputs)
        scales = read("weight_scale").astype(np.float32) / (
            2 * read("weight_global_scale").astype(np.float32)
        )
        return Codes(codes, scales)

    return group.coded((outputs, inputs), CodeForm(types.I8, 16), load)


COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized")
"""The formats of compressed-tensors that are read."""
_FLOAT8 = (".input_scale", ".activation_scale", ".activation_scale_inv", ".output_scale")
_FP8 = (
    Scheme((".weight_scale_inv", ".weight"), partial(_float8, scale="weight_scale_inv"), unread=_FLOAT8),
    Scheme((".weight_scale", ".weight"), partial(_float8, scale="weight_scale"), unread=_FLOAT8),
)
_BNB = tuple(
    Scheme(
        (
            *(f".weight.quant_state.bitsandbytes__{kind}", ".weight", ".weight.absmax", ".weight.quant_map"),
            *(".weight.nested_absmax", ".weight.nested_quant_map"),
        ),
        partial(_nf4, kind=kind),
    )
    for kind in ("nf4", "fp4")
)
SCHEMES: Mapping[str, tuple[Scheme, ...]] = MappingProxyType(
    {
        "gptq": (Scheme((".qweight", ".qzeros", ".scales", ".g_idx"), _gptq),),
        "awq": (Scheme((".qweight", ".qzeros", ".scales"), _awq),),
        "bitsandbytes": (Scheme((".SCB", ".weight", ".weight_format"), _int8), *_BNB),
        "fp8": _FP8,
        "fbgemm_fp8": _FP8,
        "mxfp4": (Scheme(("_blocks", "_scales"), _mxfp4, weight=""),),
        "compressed-tensors": (
            Scheme((".weight_packed", ".weight_scale", ".weight_global_scale"), _nvfp4),
            Scheme(
                (".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"),
                _packed,
            ),
            Scheme((".weight_scale", ".weight", ".weight_zero_point"), _integers),
            Scheme((".weight_scale", ".weight"), partial(_float8, scale="weight_scale"), unread=_FLOAT8),
        ),
    }
)
"""The schemes of each method of `quantization_config`."""
