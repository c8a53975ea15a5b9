"""Pictures for tests of images, drawn here."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from apps.moderation.drawing import encoded

CORNERS = {(0, 0): (220, 20, 20), (1, 0): (20, 200, 20), (0, 1): (20, 20, 220), (1, 1): (230, 220, 20)}
"""The quarters of a picture that can be told from itself turned, by place."""


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def corner_colours(image: Image.Image) -> list[tuple[int, int, int]]:
    """Which of the colours is in each quarter."""
    found = []
    for x, y in CORNERS:
        seen = np.array(image.getpixel((int(image.width * (0.25 + 0.5 * x)), int(image.height * (0.25 + 0.5 * y)))))
        found.append(min(CORNERS.values(), key=lambda colour: int(((seen[:3] - np.array(colour)) ** 2).sum())))
    return found


def photo(size: tuple[int, int] = (320, 240), seed: int = 1) -> Image.Image:
    """Hills under a sky, with grain: many shades, soft edges, no text."""
    rng = np.random.default_rng(seed)
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    hill = 0.55 + 0.12 * np.sin(5 * x + seed) + 0.05 * np.sin(17 * x)
    sky = np.stack([110 + 90 * y, 150 + 70 * y, 220 + 20 * y], axis=-1)
    land = np.stack([60 + 90 * (1 - y), 90 + 80 * x, 40 + 30 * y], axis=-1)
    pixels = np.where((y > hill)[..., None], land, sky) + rng.normal(0, 7, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def drawing(size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Flat colours with sharp edges."""
    from PIL import ImageDraw

    image = Image.new("RGB", size, (140, 200, 240))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, size[1] * 3 // 4, *size), (70, 150, 70))
    draw.ellipse((20, 20, 90, 90), (240, 220, 70))
    draw.polygon([(120, size[1] * 3 // 4), (200, 60), (280, size[1] * 3 // 4)], (120, 75, 45))
    return image


def jpeg(image: Image.Image, **options: Any) -> bytes:
    return encoded(image, "JPEG", quality=90, **options)


def tiff_that_claims(sizes: Sequence[tuple[int, int]]) -> bytes:
    """A TIFF of grey pages that say they are this large, with one byte of pixels for all of them."""
    made = bytearray(b"II*\0" + struct.pack("<I", 10) + b"\x80\0")
    for number, (width, height) in enumerate(sizes, 1):
        fields = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 278: height, 279: 1}
        after = len(made) + 2 + 12 * len(fields) + 4
        made += struct.pack("<H", len(fields))
        made += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields.items())
        made += struct.pack("<I", after if number < len(sizes) else 0)
    return bytes(made)


def endless_jpeg(side: int, scans: int) -> bytes:
    """A grey square, whose last scan is there so many times. Each is a pass over all pixels, and takes 42 bytes."""
    data = encoded(Image.new("L", (side, side), 128), "JPEG", progressive=True)
    return data[:-2] + data[data.rfind(b"\xff\xda") : -2] * scans + data[-2:]


def tiff_of(jpeg: bytes, side: int) -> bytes:
    """A grey TIFF whose pixels are kept as this JPEG."""
    body = jpeg + b"\0" * (len(jpeg) % 2)
    fields = {256: side, 257: side, 258: 8, 259: 7, 262: 1, 273: 8, 277: 1, 278: side, 279: len(jpeg)}
    made = b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", len(fields))
    return made + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields.items()) + bytes(4)


def opened_image(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


__all__ = [
    "CORNERS",
    "corner_colours",
    "drawing",
    "encoded",
    "endless_jpeg",
    "exif",
    "jpeg",
    "opened_image",
    "photo",
    "tiff_of",
    "tiff_that_claims",
]
