"""From the bytes of an image to the pictures that are judged. No network, no models.

Bytes come from strangers. How large an image claims to be is known before anything of it is decoded; only the decoder
of the format that the bytes begin like is used; animations are bounded in frames and in pixels decoded. Whatever a
decoder stumbles over makes the image unseen, never harmless.

An animation is looked at in full: its first frame, its last, and every one between that differs from those before. What
is partly transparent looks different on every page, so it is looked at on white and on black. A colour profile is
heeded, as browsers do: it can make a picture of what has one colour without it.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid, Unsupported
from bucketmq.models.fetch import Fetched, Unseen

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE_SIDE_MAX = 1600
"""What is judged is made no larger than this; models look at less."""
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
"""How pixels may be kept. Deeper ones are cut when they are made RGB, so we would not see what a browser shows."""
PROFILED = {"1": "L", "L": "L", "LA": "RGBA", "P": "RGBA", "PA": "RGBA", "YCbCr": "RGB"}
"""As what pixels are kept while a colour profile is applied to them; others stay as they are."""
GAMMAS = (0.4, 0.5)
"""What a PNG may say of its gamma. Browsers heed it and we do not: another one makes another picture of it."""
PRIMARIES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
"""And of its white, red, green and blue, about."""
DIFFERENCE_MAX = 16
"""Two frames are alike if no two by two pixels of them differ by more, of 255. Small text that can be read does."""


JPEG_SCANS_MAX = 100
"""A progressive JPEG has some ten. Each is a pass over all of its pixels, for which 40 bytes of the file are enough."""
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")
_START_OF_SCAN, _END = 0xDA, 0xD9


class PictureLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is decoded of one image."""

    pixels_max: int = 25_000_000
    side_max: int = 12_000
    frames_max: int = 300
    pixels_of_all_frames_max: int = 250_000_000
    different_frames_max: int = 6
    """More than this many different ones are not judged but left to a person."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise Invalid(f"{name} must be 1 or more, not {getattr(self, name)}")


PLAIN_LIMITS = PictureLimits()


def pictures(fetched: Fetched, limits: PictureLimits = PLAIN_LIMITS) -> list[Image] | Unseen:
    """What there is to see in an image, as RGB pictures."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise Unsupported("images need the package Pillow; run: pip install 'bucketmq[images]'") from None
    # Pillow's decoder for WebP makes room for the whole canvas when it opens one.
    size = webp_size(fetched.data) if fetched.kind == "webp" else None
    if size is not None and (why := _too_large(size, limits)) is not None:
        return Unseen(why)
    if fetched.kind == "jpeg" and has_too_many_scans(fetched.data):
        return Unseen(f"the image is coded in more than {JPEG_SCANS_MAX} scans")
    try:
        with _opened(fetched) as image:
            return _looked_at(image, limits)
    except Exception as error:
        # Decoders raise whatever they like on bytes made to break them: OSError, ValueError, SyntaxError, struct.error.
        return Unseen(f"the image cannot be decoded ({type(error).__name__})")


def _opened(fetched: Fetched) -> Any:
    """The decoder itself, not the one that Pillow would guess."""
    from PIL import GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

    decoder: Any = {
        "gif": GifImagePlugin.GifImageFile,
        "jpeg": JpegImagePlugin.JpegImageFile,
        "png": PngImagePlugin.PngImageFile,
        "webp": WebPImagePlugin.WebPImageFile,
    }[fetched.kind]
    return decoder(io.BytesIO(fetched.data))


def _looked_at(image: Any, limits: PictureLimits) -> list[Image] | Unseen:
    kept: list[Image] = []
    before: list[list[Image]] = []
    pixels = different = 0
    for number in range(limits.frames_max + 1):
        try:
            if number:
                image.seek(number)
        except EOFError:
            return kept
        # A frame may be larger than the image said at first.
        if (why := _too_large(image.size, limits)) is not None:
            return Unseen(why)
        if (why := _shown_otherwise(image)) is not None:
            return Unseen(why)
        pixels += image.size[0] * image.size[1]
        if number == limits.frames_max or pixels > limits.pixels_of_all_frames_max:
            break
        faces = _faces(image)
        halves = [each.reduce(2) for each in faces]
        if not any(_alike(halves, each) for each in reversed(before)):
            different += 1
            if different > limits.different_frames_max:
                return Unseen(f"the animation has more than {limits.different_frames_max} different frames")
            before.append(halves)
            kept += faces
    return Unseen(
        f"the animation is longer than {limits.frames_max} frames or {limits.pixels_of_all_frames_max} pixels"
    )


def _shown_otherwise(image: Any) -> str | None:
    """Why a browser may show something else than we would see."""
    if image.mode not in MODES:
        return f"the image keeps its pixels as {image.mode}, which is not looked at"
    gamma = image.info.get("gamma")
    if gamma is not None and not GAMMAS[0] <= gamma <= GAMMAS[1]:
        return f"the image has an unusual gamma ({gamma:g}) and may look different elsewhere"
    primaries = image.info.get("chromaticity", PRIMARIES)
    if any(abs(has - usual) > 0.01 for has, usual in zip(primaries, PRIMARIES, strict=True)):
        return "the image has unusual primary colours and may look different elsewhere"
    return None


def _faces(image: Any) -> list[Image]:
    """The frame as a reader may see it: upright, on white, and on black where that makes a difference."""
    from PIL import Image, ImageOps

    frame = _profiled(ImageOps.exif_transpose(image), image.info.get("icc_profile"))
    if frame.mode in ("RGBA", "LA", "PA") or "transparency" in frame.info:
        layered = frame.convert("RGBA")
        layered.thumbnail((PICTURE_SIDE_MAX, PICTURE_SIDE_MAX))
        if min(layered.getchannel("A").tobytes()) < 255:
            backgrounds = (Image.new("RGBA", layered.size, colour) for colour in ("white", "black"))
            return [Image.alpha_composite(behind, layered).convert("RGB") for behind in backgrounds]
        return [layered.convert("RGB")]
    seen: Image.Image = frame.convert("RGB")
    seen.thumbnail((PICTURE_SIDE_MAX, PICTURE_SIDE_MAX))
    return [seen]


def _profiled(frame: Any, profile: bytes | None) -> Any:
    """The frame in the colours that its profile gives it. One that cannot be applied is an error: it is unknown what
    others make of it."""
    if not profile:
        return frame
    from PIL import ImageCms

    plain = frame.convert("RGBA" if "transparency" in frame.info else PROFILED.get(frame.mode, frame.mode))
    to = "RGBA" if plain.mode == "RGBA" else "RGB"
    own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    return ImageCms.profileToProfile(plain, own, ImageCms.createProfile("sRGB"), outputMode=to)


def _alike(some: list[Image], others: list[Image]) -> bool:
    from PIL import ImageChops

    if [each.size for each in some] != [each.size for each in others]:
        return False
    differences = (ImageChops.difference(one, other) for one, other in zip(some, others, strict=True))
    return all(each.point(lambda much: 255 * (much > DIFFERENCE_MAX)).getbbox() is None for each in differences)


def _too_large(size: tuple[int, int], limits: PictureLimits) -> str | None:
    width, height = size
    if width * height > limits.pixels_max or max(size) > limits.side_max:
        return f"the image has {width} x {height} pixels, more than are looked at"
    return None


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the first chunk of a WebP file; None where it is not there."""
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


def has_too_many_scans(jpeg: bytes) -> bool:
    """Whether a JPEG is coded in more scans than are decoded; what is in segments or behind its end does not count."""
    at = scans = 0
    while scans <= JPEG_SCANS_MAX and (found := _MARKER.search(jpeg, at)) is not None:
        at = found.end()
        marker = jpeg[at - 1]
        if marker == _END:
            return False
        scans += marker == _START_OF_SCAN
        at += int.from_bytes(jpeg[at : at + 2], "big")
    return scans > JPEG_SCANS_MAX
