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
