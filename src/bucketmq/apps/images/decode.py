"""From the bytes of an image to a picture that is upright and in sRGB. No network, no models.

Bytes come from strangers. The decoder is chosen by how the bytes begin, never by the key's suffix; what an image says
of its size is compared with the limits before anything of it is decoded. `Unreadable` says why there is no picture; it
becomes the reason of a dead letter.

A colour profile that cannot be applied is ignored, as browsers do, and reported. Pixels of 16 bits keep their upper
eight; pixels of 32 bits have no range that would be known, and are not read.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Unsupported
from bucketmq.models.fetch import kind_of
from bucketmq.models.pictures import JPEG_SCANS_MAX, PLAIN_LIMITS, PictureLimits, has_too_many_scans, webp_size

if TYPE_CHECKING:
    from PIL.Image import Image

TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ORIENTATION = 0x0112
SIDEWAYS = (5, 6, 7, 8)
DEEP = {"I;16", "I;16L", "I;16B", "I;16N"}
"""Grey with 16 bits. Colours with 16 bits are cut to eight by the decoder."""
PLAIN = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB"}


class Unreadable(Exception):
    """There is no picture in these bytes, or one that is not read, and why."""


class Opened(msgspec.Struct, frozen=True):
    """An image whose header was read and is within the limits. Nothing of its pixels was decoded."""

    image: Any
    kind: str
    limits: PictureLimits
    orientation: int
    size: tuple[int, int]
    """Upright, and whole: a decoder may be asked for less later."""


class Picture(msgspec.Struct, frozen=True):
    """A picture as people see it: upright, in sRGB, as RGB or RGBA."""

    image: Image
    profile: str
    """What was done with its colours: `none` (it has no profile), `applied`, or `ignored` for a broken one."""


def kind_of_image(data: bytes) -> str | None:
    """The format that bytes begin like: jpeg, png, gif, webp or tiff."""
    return "tiff" if data.startswith(TIFF_STARTS) else kind_of(data)


@contextmanager
def opened(data: bytes, limits: PictureLimits = PLAIN_LIMITS) -> Iterator[Opened]:
    """The image behind its header. `Unreadable` also for whatever is found wrong inside the block."""
    kind = kind_of_image(data)
    if kind is None:
        raise Unreadable(
            "these bytes do not begin like an image that is read: jpeg, png, gif, webp or tiff"
            if data
            else "the object is empty"
        )
    if kind == "webp" and (size := webp_size(data)) is not None:  # its decoder makes room for the canvas at once
        _check_size(size, limits)
    if kind == "jpeg" and has_too_many_scans(data):
        raise Unreadable(
            f"the jpeg is coded in more than {JPEG_SCANS_MAX} scans, each of which is a pass over all of it"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd EXIF and TIFF fields; what matters is raised
            with _decoder(kind)(io.BytesIO(data)) as image:
                _check_size(image.size, limits)
                # A TIFF is turned by its decoder, which then forgets the tag.
                turned = 1 if kind == "tiff" else _orientation(image)
                width, height = image.size
                yield Opened(image, kind, limits, turned, (height, width) if turned in SIDEWAYS else (width, height))
    except (Unreadable, Unsupported):
        raise
    except MemoryError:
        raise
    except Exception as error:
        # Decoders raise whatever they like on bytes made to break them: OSError, ValueError, SyntaxError, struct.error.
        raise Unreadable(f"the {kind} cannot be decoded: {type(error).__name__}: {str(error)[:160]}") from None


def _decoder(kind: str) -> Any:
    """The decoder itself, not the one that Pillow would guess."""
    try:
        from PIL import GifImagePlugin, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin
    except ImportError:
        raise Unsupported("images need the package Pillow; run: pip install 'bucketmq[images]'") from None
    decoders: dict[str, Any] = {
        "gif": GifImagePlugin.GifImageFile,
        "jpeg": JpegImagePlugin.JpegImageFile,
        "png": PngImagePlugin.PngImageFile,
        "tiff": TiffImagePlugin.TiffImageFile,
        "webp": WebPImagePlugin.WebPImageFile,
    }
    return decoders[kind]


def _check_size(size: tuple[int, int], limits: PictureLimits) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise Unreadable(f"the image says that it has {width} x {height} pixels")
    if width * height > limits.pixels_max or max(size) > limits.side_max:
        raise Unreadable(
            f"the image has {width} x {height} pixels; the limits are {limits.pixels_max:,} in all and "
            f"{limits.side_max:,} for a side"
        )


def _orientation(image: Any) -> int:
    try:
        said = image.getexif().get(ORIENTATION, 1)
    except Exception:  # EXIF that cannot be read says nothing; the pixels may be fine
        return 1
    return said if said in range(1, 9) else 1


def fit(size: tuple[int, int], side: int) -> tuple[int, int]:
    """The size that fits into a square, never larger than it was."""
    width, height = size
    scale = min(1.0, side / max(size))
    return max(1, round(width * scale)), max(1, round(height * scale))


def picture(found: Opened, side: int | None = None) -> Picture:
    """The current frame, made to fit into a square of `side` pixels; whole without it.

    A JPEG is decoded no larger than needed. Colours are converted when the picture is small already.
    """
    from PIL import Image

    image = found.image
    if side is not None and found.kind == "jpeg":
        image.draft(image.mode, fit(image.size, side))
    _check_mode(image.mode)
    _check_size(image.size, found.limits)  # a page may be larger than the first one
    image.load()
    _check_size(image.size, found.limits)  # a frame may be larger than the image said at first
    frame = _eight_bits(image)
    if frame.mode in ("1", "P", "PA", "La", "RGBa"):
        frame = frame.convert("RGBA" if "transparency" in image.info or frame.mode in ("PA", "La", "RGBa") else "RGB")
    elif frame.mode == "LA" or "transparency" in frame.info:
        frame = frame.convert("RGBA")
    if side is not None and max(frame.size) > side:
        frame = frame.resize(fit(frame.size, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    frame, profile = _in_srgb(frame, image.info.get("icc_profile"))
    return Picture(_turned(frame, found.orientation), profile)


def _check_mode(mode: str) -> None:
    if mode not in PLAIN and mode not in DEEP:
        raise Unreadable(f"the image keeps its pixels as {mode}, whose range is unknown; write it with 8 or 16 bits")


def _eight_bits(image: Any) -> Any:
    if image.mode not in DEEP:
        return image
    import numpy as np
    from PIL import Image

    return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))


def _in_srgb(frame: Any, profile: bytes | None) -> tuple[Any, str]:
    """The frame as RGB or RGBA in sRGB."""
    plain = frame.convert("RGB") if frame.mode in ("YCbCr", "RGBX") else frame
    to = "RGBA" if plain.mode == "RGBA" else "RGB"
    if not profile:
        return plain.convert(to), "none"
    from PIL import ImageCms

    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        made = ImageCms.profileToProfile(plain, own, ImageCms.createProfile("sRGB"), outputMode=to)
    except (ImageCms.PyCMSError, OSError, ValueError):
        return plain.convert(to), "ignored"
    return (made, "applied") if made is not None else (plain.convert(to), "ignored")


def _turned(frame: Any, orientation: int) -> Any:
    from PIL.Image import Transpose

    steps = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return frame if orientation not in steps else frame.transpose(steps[orientation])


def on_white(image: Image) -> Image:
    """A picture without transparency: what is seen on a white page."""
    if image.mode != "RGBA":
        return image.convert("RGB")
    from PIL import Image as Pillow

    return Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), image).convert("RGB")


def frames_of(found: Opened) -> int:
    """How many frames or pages there are, as far as they are counted: one more than the limit means more than that."""
    counted_max = found.limits.frames_max + 1
    if found.kind == "jpeg":
        return 1
    if found.kind == "tiff":  # its decoder would read the fields of every page to count them
        return _pages_of(found.image, counted_max)
    return min(int(getattr(found.image, "n_frames", 1)), counted_max)


def _pages_of(image: Any, counted_max: int) -> int:
    try:
        for number in range(1, counted_max):
            image.seek(number)
    except EOFError:
        return number
    finally:
        image.seek(0)
    return counted_max
