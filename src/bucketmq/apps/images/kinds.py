"""What an image is (photo, drawing, screenshot or scan) and its main colours, from statistics of its pixels. Pure.

No network is asked: these are shares of pixels that anybody can count. Where they do not tell for sure, the kind is
unknown, and the confidence says how far from the borders they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.images.facts import Kind

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 384
"""What is measured is made no larger than this, without smoothing: flat areas stay flat."""

NAMES = {
    "black": (20, 20, 20),
    "dark grey": (80, 80, 80),
    "grey": (140, 140, 140),
    "light grey": (205, 205, 205),
    "white": (250, 250, 250),
    "red": (200, 40, 40),
    "dark red": (110, 25, 25),
    "pink": (240, 160, 180),
    "orange": (235, 140, 40),
    "brown": (120, 75, 45),
    "beige": (220, 200, 165),
    "yellow": (240, 220, 70),
    "green": (70, 150, 70),
    "dark green": (30, 75, 40),
    "light green": (160, 215, 150),
    "turquoise": (60, 180, 180),
    "light blue": (150, 200, 235),
    "blue": (50, 100, 200),
    "dark blue": (25, 40, 95),
    "purple": (125, 60, 160),
}
COLOUR_SHARE_MIN = 0.12
COLOURS_MAX = 3


class Measures(msgspec.Struct, frozen=True):
    """Shares of an image's pixels."""

    flat: float
    """That are equal to their neighbours on the right and below."""
    sharp: float
    """That differ from a neighbour by more than a quarter of the range."""
    paper: float
    """That are nearly white, or nearly black ink, without colour."""
    white: float
    colour: float
    """That have a colour."""
    levels: int
    """How many of 256 steps of brightness occur."""
    shades: int
    """How many colours there are, of 4,096, that each have at least one pixel in ten thousand."""


def measured(image: Image) -> Measures:
    """The measures of an RGB picture."""
    import numpy as np
    from PIL.Image import Resampling

    small = image
    if max(image.size) > SIDE:
        scale = SIDE / max(image.size)
        small = image.resize(
            (max(2, round(image.width * scale)), max(2, round(image.height * scale))), Resampling.NEAREST
        )
    pixels = np.asarray(small.convert("RGB")).astype(np.int16)
    if pixels.shape[0] < 2 or pixels.shape[1] < 2:
        pixels = np.repeat(np.repeat(pixels, 2, axis=0), 2, axis=1)
    right = np.abs(pixels[:-1, 1:] - pixels[:-1, :-1]).max(axis=2)
    below = np.abs(pixels[1:, :-1] - pixels[:-1, :-1]).max(axis=2)
    step = np.maximum(right, below)
    spread = pixels.max(axis=2) - pixels.min(axis=2)
    light = pixels.mean(axis=2)
    codes = (pixels >> 4) @ np.array([256, 16, 1])
    counts = np.bincount(codes.ravel(), minlength=4096)
    plain = spread < 24
    return Measures(
        flat=round(float((step <= 1).mean()), 4),
        sharp=round(float((step > 64).mean()), 4),
        paper=round(float((plain & ((light > 215) | (light < 70))).mean()), 4),
        white=round(float((plain & (light > 215)).mean()), 4),
        colour=round(float((spread > 48).mean()), 4),
        levels=int((np.bincount(light.astype(np.int64).ravel(), minlength=256) > light.size / 20_000).sum()),
        shades=int((counts > codes.size / 10_000).sum()),
    )


def kind_of_picture(found: Measures) -> tuple[Kind, float]:
    """The kind, and how sure that is: 0.5 on a border, towards 1 far from all of them. Unknown where none fits."""
    fitting = [(kind, _sure(found, borders)) for kind, borders in BORDERS.items()]
    kind, sure = max(fitting, key=lambda each: each[1])
    return (kind, round(sure, 2)) if sure >= 0.5 else ("unknown", 0.0)


BORDERS: dict[Kind, dict[str, tuple[float, float, float, float]]] = {
    # measure: not below, sure from, sure to, not above
    "photo": {
        "flat": (0.0, 0.0, 0.6, 0.8),
        "levels": (90, 150, 256, 256),
        "sharp": (0.0005, 0.002, 0.3, 0.4),
        "paper": (0.0, 0.0, 0.5, 0.75),
    },
    "scan": {
        "colour": (0.0, 0.0, 0.002, 0.004),
        "white": (0.55, 0.65, 0.97, 0.99),
        "sharp": (0.02, 0.05, 0.3, 0.4),
        "shades": (2, 2, 12, 16),
    },
    "screenshot": {
        "flat": (0.7, 0.8, 0.96, 0.985),
        "shades": (18, 30, 600, 900),
        "sharp": (0.015, 0.03, 0.15, 0.25),
        "colour": (0.004, 0.01, 0.4, 0.6),
    },
    "drawing": {
        "flat": (0.85, 0.93, 0.996, 0.999),
        "shades": (2, 3, 16, 24),
        "sharp": (0.002, 0.006, 0.08, 0.15),
        "colour": (0.05, 0.15, 1.0, 1.0),
    },
}
"""Chosen on a few dozen images by hand, not learned: kinds that lie apart are told apart, others stay unknown."""
SURE = 0.95


def _sure(found: Measures, borders: dict[str, tuple[float, float, float, float]]) -> float:
    """The least of what the measures say; 0 if one lies outside."""
    least = SURE
    for name, (low, low_sure, high_sure, high) in borders.items():
        value = getattr(found, name)
        if not low <= value <= high:
            return 0.0
        if value < low_sure:
            least = min(least, 0.5 + (SURE - 0.5) * (value - low) / (low_sure - low))
        elif value > high_sure:
            least = min(least, 0.5 + (SURE - 0.5) * (high - value) / (high - high_sure))
    return least


def colours_of(image: Image) -> tuple[str, ...]:
    """The names of the colours that cover most of a picture, the most frequent first."""
    import numpy as np
    from PIL.Image import Resampling

    pixels = np.asarray(image.convert("RGB").resize((64, 64), Resampling.BOX)).reshape(-1, 3).astype(np.float64)
    table = np.array(list(NAMES.values()), dtype=np.float64)
    nearest = ((_perceived(pixels)[:, None, :] - _perceived(table)[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    shares = np.bincount(nearest, minlength=len(NAMES)) / len(pixels)
    ranked = sorted(zip(shares.tolist(), NAMES, strict=True), key=lambda each: (-each[0], each[1]))
    return tuple(name for share, name in ranked[:COLOURS_MAX] if share >= COLOUR_SHARE_MIN)


def _perceived(colours: Any) -> Any:
    """Colours in CIELAB, where distances are about as people see them."""
    import numpy as np

    linear = np.asarray(colours, dtype=np.float64) / 255.0
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    scaled = (linear @ to_xyz.T) / np.array([0.9505, 1.0, 1.089])
    bent = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.stack([116 * bent[:, 1] - 16, 500 * (bent[:, 0] - bent[:, 1]), 200 * (bent[:, 1] - bent[:, 2])], axis=1)


def listed(names: Sequence[str]) -> str:
    """Names as they stand in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
