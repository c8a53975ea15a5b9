"""Pictures that the demo draws by itself: a landscape like a photo, a drawing, a page in two columns, an animation, a
transparent badge, one that lies on its side, and one that is broken. Nothing of anybody else's is in them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

LEFT = ("Rye bread is baked", "at eight o'clock,", "and sold until noon.")
RIGHT = ("On Mondays there is", "cake with plums,", "while it lasts.")


def gallery() -> dict[str, bytes]:
    """The images by their keys."""
    return {
        "raw/2025/valley.jpg": encoded(landscape(3), "JPEG", quality=88),
        "raw/2026/hills.jpg": encoded(landscape(1), "JPEG", quality=88),
        "raw/2026/sideways.jpg": _sideways(landscape(2)),
        "raw/2026/mountain.png": encoded(mountain(), "PNG"),
        "raw/2026/notice.png": encoded(notice(), "PNG"),
        "raw/2026/ball.gif": _bouncing(),
        "raw/2026/badge.png": encoded(_badge(), "PNG"),
        "raw/2026/broken.jpg": encoded(landscape(4), "JPEG")[:2_000],
    }


def landscape(seed: int, size: tuple[int, int] = (1200, 800)) -> Image:
    """Hills under a sky, with the grain of a photograph."""
    import numpy as np
    from PIL import Image

    chance = np.random.default_rng(seed)
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    ridge = 0.5 + 0.1 * np.sin(4 * x + seed) + 0.04 * np.sin(13 * x + 2 * seed)
    near = 0.72 + 0.08 * np.sin(3 * x + 5 * seed)
    sky = np.stack([120 + 90 * y, 150 + 80 * y, 215 + 20 * y], axis=-1)
    far = np.stack([90 + 40 * y, 110 + 30 * x, 120 - 40 * y], axis=-1)
    meadow = np.stack([60 + 80 * (1 - y), 95 + 60 * x, 35 + 25 * y], axis=-1)
    pixels = np.where((y > ridge)[..., None], far, sky)
    pixels = np.where((y > near)[..., None], meadow, pixels) + chance.normal(0, 7, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def mountain() -> Image:
    """Flat colours with sharp edges."""
    from PIL import Image, ImageDraw

    made = Image.new("RGB", (800, 600), (140, 200, 240))
    draw = ImageDraw.Draw(made)
    draw.ellipse((90, 70, 210, 190), (240, 220, 70))
    draw.polygon([(250, 450), (450, 150), (650, 450)], (120, 75, 45))
    draw.rectangle((0, 450, 800, 600), (70, 150, 70))
    return made


def notice() -> Image:
    """A page in two columns under a headline."""
    from PIL import Image, ImageDraw, ImageFont

    made = Image.new("RGB", (1000, 420), "white")
    draw = ImageDraw.Draw(made)
    draw.text((60, 40), "The bakery of Ada Example, Main Street", "black", ImageFont.load_default(44))
    for left, lines in ((60, LEFT), (540, RIGHT)):
        for number, line in enumerate(lines):
            draw.text((left, 150 + 70 * number), line, "black", ImageFont.load_default(36))
    return made


def _sideways(image: Image) -> bytes:
    from PIL import Image

    tags = Image.Exif()
    tags[0x0112] = 6
    return encoded(image.transpose(Image.Transpose.ROTATE_90), "JPEG", exif=tags, quality=88)


def _bouncing() -> bytes:
    from PIL import Image, ImageDraw

    frames = []
    for height in (40, 90, 130, 150, 130, 90):
        frame = Image.new("RGB", (320, 240), (235, 235, 225))
        ImageDraw.Draw(frame).ellipse((130, height, 190, height + 60), (200, 60, 50))
        frames.append(frame)
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=90, loop=0)


def _badge() -> Image:
    from PIL import Image, ImageDraw

    made = Image.new("RGBA", (400, 400), (0, 0, 0, 0))
    draw = ImageDraw.Draw(made)
    draw.ellipse((30, 30, 370, 370), (125, 60, 160, 255))
    draw.polygon([(200, 90), (280, 290), (120, 290)], (240, 220, 70, 255))
    return made


def encoded(image: Image, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()
