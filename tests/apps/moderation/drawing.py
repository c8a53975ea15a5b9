"""Images for tests, drawn here, and ways to break them."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont


def canvas(size: tuple[int, int] = (320, 160), colour: str = "white") -> Image.Image:
    return Image.new("RGB", size, colour)


def written(*lines: str, size: tuple[int, int] | None = None, colour: str = "black") -> Image.Image:
    """Lines of text, large enough to be read by anyone."""
    font = ImageFont.load_default(30)
    width = max(int(font.getlength(line)) for line in lines) + 60
    image = canvas(size or (width, 60 + 50 * len(lines)))
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((30, 30 + 50 * number), line, fill=colour, font=font)
    return image


def noise(size: tuple[int, int] = (160, 160)) -> Image.Image:
    return Image.frombytes("RGB", size, random.Random(1).randbytes(size[0] * size[1] * 3))


def encoded(image: Image.Image, format: str = "PNG", **settings: Any) -> bytes:
    to = io.BytesIO()
    image.save(to, format=format, **settings)
    return to.getvalue()


def animation(frames: Sequence[Image.Image], format: str = "GIF") -> bytes:
    return encoded(frames[0], format, save_all=True, append_images=frames[1:], duration=50, loop=0)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_that_claims(width: int, height: int) -> bytes:
    """A small file of so many pixels, all alike: a bomb."""
    line = b"\0" + b"\0" * width
    packer = zlib.compressobj(9)
    data = packer.compress(line * min(height, 64)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def profile(curve: Sequence[int]) -> bytes:
    """An ICC profile of RGB in which each colour runs along a curve, 0 to 65535."""

    def xyz(*numbers: float) -> bytes:
        return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(each * 65536) for each in numbers))

    white, runs = (0.9642, 1.0, 0.8249), b"curv\0\0\0\0" + struct.pack(f">I{len(curve)}H", len(curve), *curve)
    tags = {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", 2) + b"x\0" + b"\0" * 80,
        b"cprt": b"text\0\0\0\0x\0\0\0",
        b"wtpt": xyz(*white),
        b"rXYZ": xyz(0.4360, 0.2225, 0.0139),
        b"gXYZ": xyz(0.3851, 0.7169, 0.0971),
        b"bXYZ": xyz(0.1431, 0.0606, 0.7141),
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), runs),
    }
    index, data = struct.pack(">I", len(tags)), b""
    for name, content in tags.items():
        index += name + struct.pack(">II", 132 + 12 * len(tags) + len(data), len(content))
        data += content + b"\0" * (-len(content) % 4)
    head = struct.pack(
        ">I4sI4s4s4s12x4s", 132 + len(index) - 4 + len(data), b"lcms", 0x02100000, b"mntr", b"RGB ", b"XYZ ", b"acsp"
    )
    return (head + b"\0" * 28 + xyz(*white)[8:]).ljust(128, b"\0") + index + data


def gif_whose_frame_is_larger(width: int, height: int) -> bytes:
    """The canvas is one pixel; its second frame says that it is more."""
    small = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"

    def frame(w: int, h: int) -> bytes:
        return b"," + struct.pack("<HHHHB", 0, 0, w, h, 0) + b"\x02\x02\x44\x01\x00"

    return small + frame(1, 1) + frame(width, height) + b";"


def webp_that_claims(width: int, height: int) -> bytes:
    body = b"WEBP" + b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0"
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little") + b"\0" * 32
    return b"RIFF" + struct.pack("<I", len(body)) + body
