"""What a kernel takes of an SM, read from its binary: no GPU and no driver is asked.

A cubin is an ELF file of 64 bits. The attributes of its section `.nv.info` (their numbers: the
names that `cuobjdump -elf` prints) hold registers and stack by kernel, and each kernel has a
section for its shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_FRAME_SIZE, _REGISTER_COUNT = 0x11, 0x2F
"""EIATTR_FRAME_SIZE and EIATTR_REGCOUNT: a symbol's number, and the value."""
RESERVED_BYTES = 1024
"""Shared memory that the driver takes of each block."""
_WITH_SIZE = 4
"""Kind of attribute (EIFMT_SVAL) that is followed by as many bytes as it says."""
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def resources(binary: bytes, symbol: str) -> dict[str, int]:
    """Return `registers`, `shared_bytes` (static) and `local_bytes` of a kernel, by its mangled
    name; what the binary does not say is missing, and all of it if it is no cubin.
    """
    try:
        return _resources(binary, symbol)
    except (struct.error, IndexError, UnicodeDecodeError):
        return {}


def variable_bytes(binary: bytes, name: str) -> int | None:
    """Return the size of a variable with this mangled name; None where the binary has none."""
    try:
        sections = dict(_sections(binary))
        table, texts = sections[".symtab"][0], sections[".strtab"][0]
        found = (_SYMBOL.unpack_from(table, at) for at in range(0, len(table), _SYMBOL.size))
        return next((each[-1] for each in found if _text(texts, each[0]) == name), None)
    except (struct.error, KeyError, ValueError):
        return None


def _resources(binary: bytes, symbol: str) -> dict[str, int]:
    if binary[:4] != b"\x7fELF":
        return {}
    sections = dict(_sections(binary))
    names = list(_symbols(sections))
    if symbol not in names:
        return {}
    shared = sections.get(f".nv.shared.{symbol}", (b"", 0))[1]
    if ".nv.shared.reserved.0" in sections:  # from compute capability 9.0 on it stands in it, too
        shared = max(0, shared - RESERVED_BYTES)
    found = {"shared_bytes": shared}
    for attribute, number, value in _attributes(sections[".nv.info"][0]):
        if number < len(names) and names[number] == symbol:
            what = {_FRAME_SIZE: "local_bytes", _REGISTER_COUNT: "registers"}.get(attribute)
            if what is not None:
                found[what] = value
    return found


def _sections(binary: bytes) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield the name, content and size of each section; what takes no room in the file has none."""
    (start,) = struct.unpack_from("<Q", binary, 40)
    _, count, of_names = struct.unpack_from("<HHH", binary, 58)
    headers = [_SECTION.unpack_from(binary, start + n * _SECTION.size) for n in range(count)]
    texts = headers[of_names]
    for header in headers:
        name, kind, _, _, offset, size = header[:6]
        content = b"" if kind == 8 else binary[offset : offset + size]  # SHT_NOBITS
        yield _text(binary, texts[4] + name), (content, size)


def _symbols(sections: dict[str, tuple[bytes, int]]) -> Iterator[str]:
    table, texts = sections[".symtab"][0], sections[".strtab"][0]
    for place in range(0, len(table), _SYMBOL.size):
        yield _text(texts, _SYMBOL.unpack_from(table, place)[0])


def _attributes(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield those attributes that are a symbol's number and a value."""
    place = 0
    while place + 4 <= len(content):
        kind, attribute, size = struct.unpack_from("<BBH", content, place)
        place += 4
        if kind == _WITH_SIZE:
            if size == 8:
                number, value = struct.unpack_from("<II", content, place)
                yield attribute, number, value
            place += size


def _text(table: bytes, place: int) -> str:
    return table[place : table.index(b"\0", place)].decode()
