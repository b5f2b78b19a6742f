"""LLVM behind four functions: text to object, text to assembly, object to addresses, and all of it with a cache."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple, Protocol

from lamella.backend.cpu.jit.placing import place_objects
from lamella.base.child_process import may_fork, run_in_child
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError, Unsupported
from lamella.base.mapping import release_library
from lamella.base.object_cache import ObjectCache, open_cache
from lamella.base.optional import need
from lamella.base.paths import read_text
from lamella.base.reader import Reader
from lamella.base.records import dataclass
from lamella.kernels.target import TARGETS

# --- machines that LLVM writes code for: the host as it is, and named ones whose code can be read -----------


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")


@dataclass(frozen=True, slots=True)
class Processor:
    """What LLVM knows of a processor: its triple, its name, and its features as `+a,-b`."""

    triple: str
    cpu: str
    features: str = ""

    def has(self, *names: str) -> bool:
        """Whether all of these features are switched on."""
        listed = self.features.split(",")
        return all(f"+{name}" in listed for name in names)

    @property
    def level(self) -> str:
        """The vector instructions of the machine: avx512, avx2, neon, ptx or plain."""
        if self.triple.startswith("aarch64"):
            return "neon"
        if self.triple.startswith("nvptx"):
            return "ptx"
        return "avx512" if self.has(*AVX512) else "avx2" if self.has(*AVX2) else "plain"


MACHINES = MappingProxyType(
    {
        name: Processor(target.triple, target.cpu, target.features)
        for name, target in TARGETS.items()
        if target.triple
    }
)
"""The machines of the targets that LLVM writes code for; it can be printed on any host."""


def find_machine(name: str | None) -> Processor | None:
    """The machine of a target by its name, the host for None, or None where nobody is called so."""
    return host_machine() if name is None else MACHINES.get(name)


SHORT_RANGES_FIRST = "-greedy-reverse-local-assignment=1"
"""Registers go to short lives of values first: with the sums of a tile in all but a few registers, LLVM would otherwise
keep half of them in memory, within the inner loop."""
OPTIONS_OF = range(20, 23)
"""Releases of LLVM that know the option; one that does not would end the process."""


LLVM_FILE = "libllvmlite.so"


@cache
def llvm() -> ModuleType:
    """LLVM's binding, loaded once and made ready for all its targets."""
    binding = need("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    if binding.llvm_version_info[0] in OPTIONS_OF:
        binding.set_option("lamella", SHORT_RANGES_FIRST)
    release_library(LLVM_FILE)  # most of what was touched to load it is never touched again
    return binding


class _Host(NamedTuple):
    """What LLVM says of this machine and of itself."""

    machine: Processor
    version: str


@cache
def _host() -> _Host:
    """What LLVM says of this machine, as it was told before where nothing has changed: loading it takes long."""
    store, key = open_cache(), _host_key()
    if store is None or not key:
        return _ask_llvm()
    found = _kept_host(store, key)
    if found is None and may_fork():
        # So that a process which never compiles never has LLVM in its memory.
        run_in_child(lambda _: _keep_host(store, key, _ask_llvm()), lambda _: None)
        found = _kept_host(store, key)
    if found is None:
        found = _ask_llvm()
        _keep_host(store, key, found)
    return found


def _ask_llvm() -> _Host:
    binding = need("llvmlite.binding")
    features: dict[str, bool] = dict(binding.get_host_cpu_features())
    # LLVM would otherwise keep to half of a register where it chooses the width itself.
    features["prefer-256-bit"] = False
    listed = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    machine = Processor(str(binding.get_process_triple()), str(binding.get_host_cpu_name()), listed)
    return _Host(machine, ".".join(map(str, binding.llvm_version_info)))


def _kept_host(store: ObjectCache, key: bytes) -> _Host | None:
    words = (store.get(key) or b"").decode("utf-8", "replace").split("\n")
    return _Host(Processor(*words[:3]), words[3]) if len(words) == 4 else None


def _keep_host(store: ObjectCache, key: bytes, found: _Host) -> None:
    store.put(
        key,
        "\n".join((found.machine.triple, found.machine.cpu, found.machine.features, found.version)).encode(),
    )


def _host_key() -> bytes:
    """What LLVM's words of this machine depend on; nothing where the system does not tell of its processors."""
    package = need("llvmlite")
    try:
        text = read_text(Path("/proc/cpuinfo"))
    except LamellaError:
        return b""
    first = [line for line in text.partition("\n\n")[0].splitlines() if line.startswith(TELLING)]
    return hashlib.sha256("\n".join(("host", str(package.__version__), *first)).encode()).digest()


TELLING = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
"""The lines of /proc/cpuinfo that say which processor it is, and what it can do."""


def host_machine() -> Processor:
    """The machine that this process runs on."""
    return _host().machine


# --- what an object file asks of others: LLVM ends the process over a symbol that nobody has, so we ---------


ELF = b"\x7fELF\x02\x01"
SYMBOL_TABLE = 2
SECTION, SYMBOL = 64, 24
PROCESSORS = MappingProxyType({"x86_64": 62, "aarch64": 183})


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def undefined_symbols(content: bytes) -> list[str]:
    """The names that a 64-bit little-endian ELF object leaves open; none for objects of another format."""
    if not content.startswith(ELF):
        return []
    sections = _read_sections(content)
    tables = [section for section in sections if section.kind == SYMBOL_TABLE]
    return [name for table in tables for name in _open_names(content, table, sections)]


def is_for(content: bytes, triple: str) -> bool:
    """Whether an object is for the processor of a triple, as far as we know both."""
    wanted = PROCESSORS.get(triple.partition("-")[0])
    return wanted is None or not content.startswith(ELF) or _reader_at(content, 18).u16() == wanted


def _reader_at(content: bytes, offset: int) -> Reader:
    reader = Reader(content)
    reader.take(offset, "what stands before")
    return reader


def _read_sections(content: bytes) -> list[_Section]:
    header = _reader_at(content, 40)
    start = header.u64()
    header.take(12)
    count = header.u16()
    reader = _reader_at(content, start)
    return [_read_section(reader) for _ in range(reader.count(count, SECTION, "the section table"))]


def _read_section(reader: Reader) -> _Section:
    reader.u32()
    kind = reader.u32()
    reader.take(16)
    offset, size, link = reader.u64(), reader.u64(), reader.u32()
    reader.take(20)
    return _Section(kind, offset, size, link)


def _open_names(content: bytes, table: _Section, sections: list[_Section]) -> list[str]:
    if table.link >= len(sections):
        raise InputError("a symbol table has no names", table.offset)
    names = sections[table.link]
    reader = _reader_at(content, table.offset)
    found = []
    for _ in range(reader.count(table.size // SYMBOL, SYMBOL, "the symbol table")):
        start, _, section = reader.u32(), reader.u16(), reader.u16()
        reader.take(16)
        if start and not section:
            found.append(_name_at(content, names.offset + start))
    return found


def _name_at(content: bytes, start: int) -> str:
    end = content.find(0, start)
    return content[start : end if end >= 0 else start].decode("utf-8", "replace")


PASSES = ("sroa",)
"""The passes over the text that pay for themselves: everything else is in the text or in code generation."""

KNOWN_PASSES = MappingProxyType(
    {
        "sroa": "add_sroa_pass",
        "instcombine": "add_instruction_combine_pass",
        "simplifycfg": "add_simplify_cfg_pass",
        "gvn": "add_new_gvn_pass",
        "dce": "add_dead_code_elimination_pass",
        "reassociate": "add_reassociate_pass",
        "loop-simplify": "add_loop_simplify_pass",
        "loop-rotate": "add_loop_rotate_pass",
        "lsr": "add_loop_strength_reduce_pass",
        "sink": "add_sinking_pass",
    }
)
LEVEL = 2
OWN_NAMES = ("_GLOBAL_OFFSET_TABLE_",)
"""Names that the loader itself gives a meaning."""
C_LIBRARIES = ("ucrtbase",) if sys.platform == "win32" else (None, "libm.so.6")


def code_error(problem: str) -> InputError:
    """That LLVM refuses what we wrote: never the fault of the program that was compiled."""
    line = " ".join(problem.split())
    return InputError(f"the compiler wrote code that LLVM refuses: {line}", hint="please report it")


class TargetMachine(Protocol):
    """What we use of LLVM's TargetMachine."""

    target_data: object

    def set_asm_verbosity(self, is_verbose: bool) -> None:
        """Leave comments out of assembly, or not."""

    def emit_object(self, module: object) -> bytes:
        """The object of a module."""

    def emit_assembly(self, module: object) -> str:
        """The assembly of a module."""


class LlvmTarget(Protocol):
    """What we use of LLVM's Target."""

    def create_target_machine(
        self, *, cpu: str, features: str, opt: int, reloc: str, codemodel: str
    ) -> TargetMachine:
        """A writer for one processor."""


class ObjectStore(Protocol):
    """Where objects are kept between processes."""

    def get(self, key: bytes) -> bytes | None:
        """What was put under a key, if it is still there and whole."""

    def put(self, key: bytes, content: bytes) -> None:
        """Keep bytes under a key."""


class KeptObject(NamedTuple):
    """Where an object is kept between processes: under what key, and where it begins in what is kept there."""

    key: bytes
    start: int


class LoadedCode:
    """Machine code in memory, alive as long as this object."""

    def __init__(self, engine: object, addresses: dict[str, int], kept: KeptObject | None = None) -> None:
        self._engine = engine
        self._addresses = addresses
        self.kept = kept
        """Where the object is kept; None where it is not."""

    def address(self, symbol: str) -> int:
        """Where the code of a symbol begins."""
        found = self._addresses.get(symbol)
        if found is None:
            raise code_error(f"there is no symbol '{symbol}'")
        return found

    def symbol(self, address: int) -> str:
        """The symbol whose code begins at an address."""
        return next(name for name, found in self._addresses.items() if found == address)


def _make_writer(target: LlvmTarget, machine: Processor) -> TargetMachine:
    """A TargetMachine; code and constants will lie close together, so they find each other by distance."""
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=LEVEL, reloc="pic", codemodel="small"
    )


@cache
def _shared_writer(machine: Processor) -> TargetMachine:
    """The TargetMachine of all texts for a processor: each new one would cost as much as a small kernel."""
    try:
        target = llvm().Target.from_triple(machine.triple)
    except RuntimeError as problem:
        raise code_error(str(problem)) from None
    writer = _make_writer(target, machine)
    writer.set_asm_verbosity(False)
    return writer


class _Compilation:
    """One text on its way through LLVM."""

    def __init__(self, text: str, machine: Processor, passes: Sequence[str]) -> None:
        binding = llvm()
        self._context = binding.create_context()  # the parsed module dies with its context
        try:
            self.module = binding.parse_assembly(text, self._context)
            self.module.verify()
        except RuntimeError as problem:
            raise code_error(str(problem)) from None
        self.writer = _shared_writer(machine)
        self.module.triple = machine.triple
        self.module.data_layout = str(self.writer.target_data)
        self._improve(passes)

    def _improve(self, passes: Sequence[str]) -> None:
        binding = llvm()
        options = binding.create_pipeline_tuning_options(speed_level=LEVEL)
        builder = binding.create_pass_builder(self.writer, options)
        manager = binding.create_new_function_pass_manager()
        for name in passes:
            getattr(manager, KNOWN_PASSES[name])()
        for function in self.module.functions:
            if not function.is_declaration:
                manager.run(function, builder)


def assemble(text: str, machine: Processor, passes: Sequence[str] = PASSES) -> bytes:
    """The object file of a text in LLVM IR; InputError where LLVM refuses it."""
    translation = _Compilation(text, machine, passes)
    return bytes(translation.writer.emit_object(translation.module))


def assembly(text: str, machine: Processor, passes: Sequence[str] = PASSES) -> str:
    """The assembly, or PTX, of a text in LLVM IR; InputError where LLVM refuses it."""
    translation = _Compilation(text, machine, passes)
    return str(translation.writer.emit_assembly(translation.module))


def pack_objects(objects: Sequence[bytes]) -> bytes:
    """Several objects one behind the other: how many there are, the size of each, and they themselves."""
    head = [len(objects), *map(len, objects)]
    return b"".join((*(item.to_bytes(8, "little") for item in head), *objects))


def unpack_objects(content: bytes) -> list[bytes]:
    """The objects that stand one behind the other; InputError where they do not."""
    reader = Reader(content)
    sizes = [reader.u64() for _ in range(reader.count(reader.u64(), 8, "the objects"))]
    found = [reader.take(reader.count(size, 1, "an object")) for size in sizes]
    reader.finish("the objects")
    return found


def load(content: bytes, symbols: Sequence[str], kept: KeptObject | None = None) -> LoadedCode:
    """Bring an object of the host into memory and find its symbols; InputError where it lacks something."""
    return load_all([content], symbols, kept)


def load_all(objects: Sequence[bytes], symbols: Sequence[str], kept: KeptObject | None = None) -> LoadedCode:
    """Bring objects of the host into memory and find their symbols; InputError where they lack something."""
    if any(not is_for(content, host_machine().triple) for content in objects):
        raise code_error("the object is for another processor")
    try:
        memory, found = place_objects(objects, symbols, _resolve)
    except Unsupported:
        return _link(objects, symbols, kept)
    missing = [name for name in symbols if name not in found]
    if missing:
        # LLVM would not find it either, and may end the process over it.
        raise code_error(f"there is no symbol '{missing[0]}'")
    return LoadedCode(memory, found, kept)


def _link(objects: Sequence[bytes], symbols: Sequence[str], kept: KeptObject | None) -> LoadedCode:
    """The same by LLVM, which knows every kind of object."""
    binding, host = llvm(), host_machine()
    library = binding.JITLibraryBuilder()
    for content in objects:
        library.add_object_img(content)
    for name in sorted({name for content in objects for name in undefined_symbols(content)}):
        if name not in OWN_NAMES:
            library.import_symbol(name, _resolve(name))
    for name in symbols:
        library.export_symbol(name)
    writer = _make_writer(binding.Target.from_triple(host.triple), host)
    try:
        linker = binding.create_lljit_compiler(writer, use_jit_link=True, suppress_errors=True)
        tracker = library.link(linker, "kernels")
    except RuntimeError as problem:
        raise code_error(str(problem)) from None
    return LoadedCode((linker, tracker), {name: int(tracker[name]) for name in symbols}, kept)


def _resolve(name: str) -> int:
    """The address of a function of C that an object calls: in this process or in the library of mathematics."""
    for library in C_LIBRARIES:
        with suppress(AttributeError, OSError):
            found = ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
            if found:
                return found
    raise code_error(f"nobody has '{name}'")


def object_key(text: str, machine: Processor, passes: Sequence[str] = PASSES) -> bytes:
    """What an object depends on, as 32 bytes."""
    package = need("llvmlite")
    parts = (machine.triple, machine.cpu, machine.features, str(package.__version__), _host().version)
    listed = "\0".join((*parts, str(LEVEL), ",".join(passes), text))
    return hashlib.sha256(listed.encode()).digest()


def build(
    text: str, symbols: Sequence[str], store: ObjectStore | None = None, passes: Sequence[str] = PASSES
) -> LoadedCode:
    """Machine code of the host for a text, from the store if it is there and put there if it is not."""
    machine = host_machine()
    if store is None:
        return load(assemble(text, machine, passes), symbols)
    key = object_key(text, machine, passes)
    content = store.get(key)
    if content is None:
        content = assemble(text, machine, passes)
        store.put(key, content)
    return load(content, symbols)
