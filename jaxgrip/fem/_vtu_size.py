"""Size of a VTU file when unpacked, checked before unpacking."""

import base64
import binascii
import lzma
import re
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from jaxgrip._files import LARGEST_MESH, read_bytes

# Bytes of about ten million nodes; reading takes a few times as much memory.
LARGEST = 2**30
UNPACKERS = {
    "vtkZLibDataCompressor": zlib.decompressobj,
    "vtkLZMADataCompressor": lzma.LZMADecompressor,
}


def check_vtu(path: Path) -> None:
    """Raise `ValueError` for a file `.vtu` whose arrays are too large, or that has several pieces.

    Headers give the sizes of compressed arrays. Each block is unpacked up to that size only, so
    that a header cannot understate it.
    """
    root, appended = _parse(read_bytes(path, LARGEST_MESH))
    pieces = root.findall("./UnstructuredGrid/Piece")
    if len(pieces) > 1:
        raise ValueError(
            f"it has {len(pieces)} pieces, whose nodes need not be joined; merge them, as "
            "ParaView's filter Clean to Grid does"
        )
    compressor = root.get("compressor")
    if compressor is None:
        return
    if compressor not in UNPACKERS:
        raise ValueError(f"its compressor {compressor[:40]!r} is not known")
    number = np.dtype("u8" if root.get("header_type") == "UInt64" else "u4").newbyteorder(
        ">" if root.get("byte_order") == "BigEndian" else "<"
    )
    arrays = [_packed(array, appended, number) for array in root.iter("DataArray")]
    arrays = [array for array in arrays if array is not None]
    total = sum(size for sizes, _, _ in arrays for size in sizes)
    if total > LARGEST:
        raise ValueError(
            f"it would unpack to {total:.3g} bytes from {path.stat().st_size:.3g}; at most "
            f"{LARGEST:.3g} are read. Write it with fewer fields or elements"
        )
    for sizes, packed, data in arrays:
        at = 0
        for size, length in zip(sizes, packed, strict=True):
            block = data[at : at + length]
            at += length
            try:
                unpacked = UNPACKERS[compressor]().decompress(block, size + 1)
            except (zlib.error, lzma.LZMAError) as error:
                raise ValueError(f"a block of it is damaged: {error}") from None
            if len(unpacked) > size:
                raise ValueError(f"a block of it unpacks to more than the {size} bytes it says")


def _parse(content: bytes) -> tuple[ElementTree.Element, str | bytes]:
    """The tree without the appended data, and those: words of base64, or bytes."""
    begin = re.search(rb"<AppendedData[^>]*>", content)
    if begin is None:
        return ElementTree.fromstring(content), ""
    end = content.rfind(b"</AppendedData>")
    data = content[begin.end() : end].partition(b"_")[2]
    root = ElementTree.fromstring(content[: begin.end()] + content[end:])
    raw = root.find("AppendedData").get("encoding") == "raw"
    return root, data if raw else data.decode(errors="replace").strip()


def _packed(
    array: ElementTree.Element, appended: str | bytes, number: np.dtype
) -> tuple[list[int], list[int], bytes] | None:
    """Unpacked sizes, packed sizes and packed bytes of an array's blocks; None if it is text."""
    kind = array.get("format", "ascii")
    if kind == "appended":
        data = appended[int(array.get("offset", 0)) :]
    elif kind == "binary":
        data = (array.text or "").strip()
    else:
        return None

    def read(begin: int, length: int) -> bytes:
        if isinstance(data, bytes):
            return data[begin : begin + length]
        # Header and blocks are encoded separately, each from a new group of four characters.
        start = -(-begin // 3) * 4
        try:
            return base64.b64decode(data[start : start + -(-length // 3) * 4])[:length]
        except binascii.Error as error:
            raise ValueError(f"an array of it is no base64: {error}") from None

    def numbers(count: int) -> list[int]:
        content = read(0, count * number.itemsize)
        if len(content) < count * number.itemsize:
            raise ValueError("an array of it is shorter than its header says; it is cut off")
        return np.frombuffer(content, number).tolist()

    blocks = numbers(1)[0]
    if blocks > len(data):
        raise ValueError(f"an array of it has {blocks} blocks, more than the file has bytes")
    _, size, last, *packed = numbers(3 + blocks)
    sizes = [size] * blocks
    if blocks and last:
        sizes[-1] = last
    return sizes, packed, read((3 + blocks) * number.itemsize, sum(packed))
