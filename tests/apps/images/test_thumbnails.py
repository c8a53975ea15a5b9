"""Thumbnails of whatever cameras, scanners and attackers make: the right picture, or a reason why there is none."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import pytest

pytest.importorskip("PIL")

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageDraw, TiffImagePlugin

from apps.images.drawn import (
    CORNERS,
    corner_colours,
    encoded,
    endless_jpeg,
    exif,
    photo,
    tiff_of,
    tiff_that_claims,
)
from apps.moderation.drawing import (
    animation,
    canvas,
    chunk,
    gif_whose_frame_is_larger,
    png_that_claims,
    profile,
    webp_that_claims,
)
from bucketmq.apps.images import thumbnails as module
from bucketmq.apps.images.decode import Unreadable, frames_of, opened
from bucketmq.apps.images.thumbnails import SIZES, Made, Settings, thumbnails
from bucketmq.models.fetch import Fetched, Unseen
from bucketmq.models.pictures import PictureLimits, pictures

SMALL = Settings(sizes=(32, 64))


def made(data: bytes, settings: Settings = SMALL) -> Made:
    return thumbnails(data, settings)


def shown(data: bytes, settings: Settings = SMALL) -> Image.Image:
    """The largest thumbnail."""
    return Image.open(io.BytesIO(thumbnails(data, settings).files[max(settings.sizes)]))


def test_all_sizes_are_webp_that_fit_and_keep_the_shape() -> None:
    found = made(encoded(photo((900, 600)), "JPEG"), Settings())
    sizes = {size: Image.open(io.BytesIO(data)) for size, data in found.files.items()}
    assert {size: image.size for size, image in sizes.items()} == {256: (256, 171), 800: (800, 533), 1600: (900, 600)}
    assert {image.format for image in sizes.values()} == {"WEBP"} and tuple(sorted(sizes)) == SIZES
    assert (found.width, found.height, found.format, found.frames, found.animated) == (900, 600, "jpeg", 1, False)


def test_a_small_image_is_not_enlarged_and_is_there_in_every_size() -> None:
    found = made(encoded(photo((40, 20))), Settings())
    assert set(found.sizes.values()) == {(40, 20)} and len(set(found.files.values())) == 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_applied(orientation: int, format: str) -> None:
    """libvips#3521, immich_ynh#338: sideways thumbnails where EXIF is not read."""
    upright = Image.new("RGB", (60, 40))
    for place, colour in CORNERS.items():
        ImageDraw.Draw(upright).rectangle(
            (place[0] * 30, place[1] * 20, place[0] * 30 + 29, place[1] * 20 + 19), colour
        )
    data = encoded(
        stored_as(upright, orientation), format, exif=exif(orientation), **({"quality": 95} if format != "TIFF" else {})
    )
    found = made(data)
    image = Image.open(io.BytesIO(found.files[64])).convert("RGB")
    assert image.size == (60, 40) and (found.width, found.height) == (60, 40)
    assert corner_colours(image) == list(CORNERS.values())


def stored_as(upright: Image.Image, orientation: int) -> Image.Image:
    """The pixels that, turned as the tag says, are upright."""
    turn = Image.Transpose
    back: dict[int, Any] = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_90,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_270,
    }
    return upright if orientation == 1 else upright.transpose(back[orientation])


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_no_metadata_reaches_a_thumbnail(format: str) -> None:
    """A photograph says where it was taken; its thumbnail must not."""
    tags = Image.Exif()
    tags[ExifTags.Base.Artist] = "Ada Example"
    tags.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (52.0, 31.0, 12.0)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = encoded(photo((90, 60)), format, exif=tags, icc_profile=srgb)
    assert b"Ada Example" in data
    for thumb in made(data).files.values():
        image = Image.open(io.BytesIO(thumb))
        assert not image.getexif() and not {"exif", "icc_profile", "xmp"} & set(image.info)
        assert b"Ada Example" not in thumb and b"EXIF" not in thumb and b"ICCP" not in thumb and b"XMP" not in thumb


def test_colours_of_a_profile_become_srgb() -> None:
    """Whoever ignores the profile would show 60 where the photographer saw black."""
    curved = profile([0, 0, 0, 65535])
    data = encoded(Image.new("RGB", (64, 64), (60, 60, 60)), "PNG", icc_profile=curved)
    found = made(data)
    assert found.profile == "applied"
    assert max(Image.open(io.BytesIO(found.files[64])).convert("RGB").getpixel((30, 30))) < 20


@pytest.mark.parametrize("broken", [b"nothing like a profile", b"\0" * 128, profile([0, 65535])[:100]])
def test_an_odd_profile_is_ignored_and_the_thumbnail_is_not_empty(broken: bytes) -> None:
    """libvips#1635: an odd ICC profile gave an empty file."""
    found = made(encoded(Image.new("RGB", (64, 64), "red"), "JPEG", icc_profile=broken))
    assert found.profile == "ignored"
    red, green, _ = Image.open(io.BytesIO(found.files[64])).convert("RGB").getpixel((30, 30))
    assert red > 230 and green < 40


def test_a_profile_of_another_colour_space_is_ignored() -> None:
    grey = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    assert made(encoded(Image.new("RGB", (64, 64), "red"), "JPEG", icc_profile=grey)).profile == "ignored"


def test_cmyk_becomes_rgb() -> None:
    image = Image.new("CMYK", (64, 64), (0, 255, 255, 0))
    for format in ("JPEG", "TIFF"):
        red, green, blue = shown(encoded(image, format)).convert("RGB").getpixel((30, 30))
        assert red > 200 and green < 60 and blue < 60, format


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_brightness(format: str) -> None:
    """Converted naively, everything above 255 of 65,535 is white."""
    ramp = np.linspace(0, 65535, 64, dtype=np.uint16)[None, :].repeat(64, axis=0)
    image = shown(encoded(Image.fromarray(ramp), format)).convert("L")
    dark, middle, light = (image.getpixel((x, 32)) for x in (2, 32, 61))
    assert dark < 20 and 110 < middle < 150 and light > 235


def test_colours_of_sixteen_bits_keep_their_brightness() -> None:
    line = b"\0" + struct.pack(">3H", 0x8080, 0x2020, 0xF0F0) * 64
    header = struct.pack(">IIBBBBB", 64, 64, 16, 2, 0, 0, 0)
    packed = zlib.compress(line * 64)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    assert np.allclose(shown(data).convert("RGB").getpixel((30, 30)), (0x80, 0x20, 0xF0), atol=6)


def test_pixels_of_thirty_two_bits_say_why_they_are_not_read() -> None:
    data = encoded(Image.fromarray(np.linspace(0, 9, 4096, dtype=np.float32).reshape(64, 64)), "TIFF")
    with pytest.raises(Unreadable, match="keeps its pixels as F, whose range is unknown"):
        made(data)


def test_an_interlaced_png_is_read() -> None:
    """libvips#646: interlaced PNGs cannot be streamed, and were refused or took all memory."""
    data = interlaced(Image.new("RGB", (70, 50), (200, 30, 90)))
    assert np.allclose(shown(data).convert("RGB").getpixel((40, 20)), (200, 30, 90), atol=8)


def interlaced(image: Image.Image) -> bytes:
    """The image as an Adam7 PNG, which Pillow reads and does not write."""
    pixels = np.asarray(image)
    raw = b""
    for x0, y0, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        for line in pixels[y0::dy, x0::dx]:
            raw += b"\0" + line.tobytes()
    header = struct.pack(">IIBBBBB", image.width, image.height, 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (Image.new("1", (64, 64), 1), "one bit"),
        (Image.new("L", (64, 64), 128), "grey"),
        (Image.new("LA", (64, 64), (128, 60)), "grey and transparent"),
        (photo((64, 64)).convert("P"), "palette"),
        (photo((64, 64)).convert("RGBA"), "transparent"),
    ],
)
def test_every_way_to_keep_pixels_is_read(image: Image.Image, name: str) -> None:
    assert shown(encoded(image, "PNG")).size == (64, 64), name


def test_transparency_stays() -> None:
    image = shown(encoded(Image.new("RGBA", (64, 64), (200, 0, 0, 90)), "PNG"))
    assert image.mode == "RGBA" and 85 < image.getpixel((30, 30))[3] < 95
    hole = Image.new("P", (64, 64), 1)
    hole.putpalette([255, 0, 0, 0, 255, 0])
    assert shown(encoded(hole, "GIF", transparency=1)).convert("RGBA").getpixel((30, 30))[3] == 0


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_animations_stay_animations_or_become_their_first_frame(format: str) -> None:
    data = animation([canvas((80, 60), colour) for colour in ("red", "green", "blue")], format)
    found = made(data)
    assert (found.frames, found.animated) == (3, True)
    for thumb in found.files.values():
        image = Image.open(io.BytesIO(thumb))
        assert image.n_frames == 3
        image.seek(2)
        assert image.convert("RGB").getpixel((20, 20))[2] > 200
        assert image.info["duration"] == 50
    first = made(data, Settings(sizes=(32,), keep_animations=False))
    image = Image.open(io.BytesIO(first.files[32]))
    assert not first.animated and image.n_frames == 1 and image.convert("RGB").getpixel((9, 9))[0] > 200


@pytest.mark.parametrize(("repeats", "milliseconds"), [(70_000, 50), (0, 65_535_000)])
def test_an_animation_longer_than_webp_can_say_stays_one(repeats: int, milliseconds: int) -> None:
    frames = [canvas((80, 60), colour) for colour in ("red", "green", "blue")]
    more = {"save_all": True, "append_images": frames[1:], "loop": repeats, "duration": milliseconds}
    assert made(encoded(frames[0], "PNG", **more)).animated


def test_an_animation_beyond_the_bounds_becomes_its_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """copyparty#1556: memory with animated images."""
    data = animation([canvas((80, 60), colour) for colour in ("red", "green", "blue", "white")])
    monkeypatch.setattr(module, "ANIMATED_FRAMES_MAX", 3)
    assert (made(data).frames, made(data).animated) == (4, False)
    monkeypatch.setattr(module, "ANIMATED_FRAMES_MAX", 100)
    assert made(data).animated
    monkeypatch.setattr(module, "ANIMATED_PIXELS_MAX", 1000)
    assert not made(data).animated
    limits = PictureLimits(pixels_of_all_frames_max=80 * 60 * 3)
    assert not made(data, Settings(sizes=(8,), limits=limits)).animated


def test_the_first_page_of_a_tiff_is_shown() -> None:
    data = encoded(canvas((64, 64), "red"), "TIFF", save_all=True, append_images=[canvas((64, 64), "blue")])
    found = made(data)
    assert (found.frames, found.animated) == (2, False)
    assert Image.open(io.BytesIO(found.files[64])).convert("RGB").getpixel((9, 9))[0] > 200


def test_frames_are_counted_up_to_one_more_than_the_limit() -> None:
    """A PNG says a number that no column holds; of 300,000 pages of a TIFF, each is read to be counted."""
    said = encoded(photo((64, 48)))
    moves = said[:33] + chunk(b"acTL", struct.pack(">II", 0x80000000, 0)) + said[33:]
    frames_max = PictureLimits().frames_max
    assert (made(moves).frames, made(moves).animated) == (frames_max + 1, False)
    limits = PictureLimits(frames_max=4)
    assert made(tiff_that_claims([(1, 1)] * 4), Settings(sizes=(8,), limits=limits)).frames == 4
    with opened(tiff_that_claims([(1, 1)] * 50), limits) as found:
        assert frames_of(found) == 5 and found.image.tell() == 0
        assert len(found.image._frame_pos) == 5  # the pages whose fields it has read


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"])
def test_compressed_tiffs_are_read(compression: str) -> None:
    assert shown(encoded(photo((90, 60)), "TIFF", compression=compression)).size == (64, 43)


@pytest.mark.parametrize(("width", "height"), [(787_402, 787_402), (12_001, 4), (40_000, 40_000)])
def test_a_bomb_is_refused_before_anything_is_decoded(width: int, height: int) -> None:
    """libvips#646: a PNG of 1.2 MB that says 787,402 x 787,402."""
    with pytest.raises(Unreadable, match=f"{width} x {height} pixels; the limits are 25,000,000 in all"):
        made(png_that_claims(width, height))


def test_a_webp_that_claims_too_much_makes_no_room_for_it() -> None:
    with pytest.raises(Unreadable, match="16000 x 16000 pixels; the limits are"):
        made(webp_that_claims(16_000, 16_000))


def test_a_frame_that_is_larger_than_the_image_said_is_refused() -> None:
    with pytest.raises(Unreadable, match=r"20000 x 20000 pixels; the limits are|cannot be decoded"):
        made(gif_whose_frame_is_larger(20_000, 20_000))


def test_a_jpeg_of_endless_scans_is_refused_before_it_is_decoded() -> None:
    """To decode it would take minutes."""
    endless = endless_jpeg(5000, 20_000)
    with pytest.raises(Unreadable, match="more than 100 scans"):
        thumbnails(endless, SMALL)
    seen = pictures(Fetched(endless, "jpeg"))
    assert isinstance(seen, Unseen) and "scans" in seen.reason
    # A film behind the image, as telephones write it, and a segment of its own do not count.
    data = endless_jpeg(5000, 0)
    noted = data[:2] + b"\xff\xe5\x08\x02" + b"\xff\xda" * 1024 + data[2:] + b"\xff\xda" * 1024
    assert thumbnails(noted, SMALL).width == 5000


def test_a_jpeg_of_endless_scans_in_a_tiff_is_given_up_by_its_decoder() -> None:
    """Which counts them, and stops after a hundred."""
    assert thumbnails(tiff_of(endless_jpeg(1000, 20), 1000), SMALL).width == 1000
    with pytest.raises(Unreadable, match="the tiff cannot be decoded"):
        thumbnails(tiff_of(endless_jpeg(1000, 100), 1000), SMALL)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF"])
def test_limits_hold_for_every_format(kind: str) -> None:
    data = encoded(canvas((300, 200)), kind)
    with pytest.raises(Unreadable, match="300 x 200 pixels; the limits are 50,000 in all"):
        made(data, Settings(sizes=(8,), limits=PictureLimits(pixels_max=50_000)))


def test_a_suffix_or_content_type_that_lies_does_not_matter() -> None:
    """The decoder is chosen by the bytes: nothing but they are given."""
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF"):
        assert made(encoded(photo((64, 64)).convert("RGB"), format)).format == format.lower()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF"])
def test_a_truncated_file_says_so(format: str) -> None:
    data = encoded(photo((300, 300)), format)
    with pytest.raises(Unreadable, match=f"the {format.lower()} cannot be decoded: "):
        made(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the object is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "do not begin like an image that is read: jpeg, png, gif, webp"),
        (b"\0\0\0\x1cftypavif", "do not begin like an image that is read"),
        (b"%PDF-1.7", "do not begin like an image that is read"),
        (b"\x89PNG\r\n\x1a\n", "the png cannot be decoded"),
        (b"\xff\xd8\xff", "the jpeg cannot be decoded"),
        (b"II*\0\x08\0\0\0", "the tiff cannot be decoded"),
    ],
)
def test_what_is_no_image_says_why(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        made(data)


def test_a_jpeg_is_decoded_no_larger_than_needed() -> None:
    data = encoded(photo((1600, 1200)), "JPEG")
    with opened(data) as found:
        module.picture(found, 128)
        assert found.image.size == (200, 150) and found.size == (1600, 1200)


def test_the_same_image_gives_the_same_bytes() -> None:
    data = encoded(photo((300, 200)), "JPEG")
    assert made(data) == made(data)


def test_tiff_fields_that_do_not_matter_harm_nothing() -> None:
    fields = TiffImagePlugin.ImageFileDirectory_v2()
    fields[65000] = "Ada Example"
    fields.tagtype[65000] = 2
    assert shown(encoded(photo((64, 64)), "TIFF", tiffinfo=fields)).size == (64, 64)
