"""Images of posts: fetched with care, decoded with care, scored and read; whatever was not seen is never approved."""

from __future__ import annotations

import importlib.util
import pickle
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")

from PIL import Image, ImageChops, ImageCms, ImageDraw, ImageFont

from apps.moderation.drawing import (
    animation,
    canvas,
    chunk,
    encoded,
    gif_whose_frame_is_larger,
    noise,
    png_that_claims,
    profile,
    webp_that_claims,
    written,
)
from apps.moderation.models import BAD_WORDS, approved
from bucketmq.apps.moderation.classify.images import Bands, TextOnly, WithImages
from bucketmq.apps.moderation.record import CATEGORIES, Category, Post, Verdict, in_doubt
from bucketmq.errors import Invalid, Unsupported
from bucketmq.models.fetch import Fetched, Fetcher, FetchSettings, Unseen, kind_of
from bucketmq.models.nsfw import EXPOSED, Highest, NudeNet, OpenNsfw, nsfw_scorer
from bucketmq.models.ocr import RapidOcr, Reading
from bucketmq.models.pictures import (
    PICTURE_SIDE_MAX,
    PLAIN_LIMITS,
    PictureLimits,
    pictures,
    webp_size,
)
from bucketmq.notify.http import Poster
from bucketmq.testing.endpoints import Endless, Endpoint, HangUp, Raw, Received, Reply, Silent, Step, Trickle, endpoint

PLAIN = encoded(canvas(colour="skyblue"))
HERE = FetchSettings(private=True, seconds_max=20.0)
"""For servers on this machine."""


def image(data: bytes, kind: str = "image/png") -> Reply:
    return Reply(200, {"Content-Type": kind}, data)


def fetch(steps: Sequence[Step], settings: FetchSettings = HERE) -> Fetched | Unseen:
    with endpoint(steps) as there, Fetcher(settings) as fetcher:
        return fetcher.fetch(there.url)


# Fetching.


@pytest.mark.parametrize(("format", "kind"), [("PNG", "png"), ("JPEG", "jpeg"), ("GIF", "gif"), ("WEBP", "webp")])
def test_an_image_is_fetched_and_known_by_its_bytes(format: str, kind: str) -> None:
    data = encoded(canvas(), format)
    assert fetch([image(data, "image/jpeg; charset=binary")]) == Fetched(data, kind)


def test_addresses_of_our_own_network_are_not_spoken_to() -> None:
    with endpoint([image(PLAIN)]) as there, Fetcher() as fetcher:
        for url in (there.url, there.url.replace("http", "https"), "https://127.0.0.1/a.png", "https://[::1]/a.png"):
            found = fetcher.fetch(url)
            assert isinstance(found, Unseen) and "refused" in found.reason, url
        for url in ("https://169.254.169.254/latest", "file:///etc/passwd", "data:image/png;base64,AAAA", "", "x"):
            found = fetcher.fetch(url)
            assert isinstance(found, Unseen) and "refused" in found.reason, url
        assert there.requests == []


def test_redirects_are_followed_and_each_is_checked() -> None:
    def script(request: Received) -> Step:
        if request.path == "/hook":
            return Reply(302, {"Location": "/second"})
        if request.path == "/second":
            return Reply(307, {"Location": "third?a=b"})
        return image(PLAIN)

    with endpoint(script) as there, Fetcher(HERE) as fetcher:
        assert fetcher.fetch(there.url) == Fetched(PLAIN, "png")
        assert [each.path for each in there.requests] == ["/hook", "/second", "/third?a=b"]


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "http://[::ffff:169.254.169.254]/",
        "http://[x",
        "",
    ],
)
def test_a_redirect_gets_nobody_further_than_an_address(location: str) -> None:
    found = fetch([Reply(302, {"Location": location})])
    assert isinstance(found, Unseen) and ("refused" in found.reason or "redirect" in found.reason)


def test_redirects_end() -> None:
    with endpoint([Reply(302, {"Location": "/again"})]) as there, Fetcher(HERE) as fetcher:
        found = fetcher.fetch(there.url)
        assert isinstance(found, Unseen) and "3 redirects" in found.reason
        assert len(there.requests) == 4


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (Reply(404), "status 404"),
        (Reply(204), "status 204"),
        (Reply(503), "status 503"),
        (HangUp(), "not be fetched"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 5000\r\n\r\n" + PLAIN), "not be fetched"),
        (image(b"<html>hello</html>"), "does not begin like an image"),
        (image(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"), "image/svg+xml"),
        (image(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "does not begin like an image"),
        (image(PLAIN, "text/html"), "text/html"),
        (Reply(200, {}, PLAIN), "unknown"),
        (image(b""), "does not begin like an image"),
        (image(PLAIN + b"\0" * 100_000), "larger than"),
        (Endless(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"), "larger than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_an_image_of_fair_size_is_unseen(step: Step, word: str) -> None:
    found = fetch([step], FetchSettings(private=True, bytes_max=50_000, seconds_max=20.0))
    assert isinstance(found, Unseen) and word in found.reason, found


@pytest.mark.parametrize("step", [Silent(), Trickle()], ids=["silent", "trickle"])
def test_a_slow_server_is_left(step: Step) -> None:
    found = fetch([step], FetchSettings(private=True, seconds_max=0.3))
    assert isinstance(found, Unseen) and ("timed out" in found.reason or "no time" in found.reason)


def test_a_server_that_stumbles_once_is_asked_again() -> None:
    assert isinstance(fetch([Reply(500), image(PLAIN)]), Fetched)
    assert isinstance(fetch([HangUp(), image(PLAIN)]), Fetched)


def test_a_body_of_exactly_the_limit_is_whole() -> None:
    exact = FetchSettings(private=True, bytes_max=len(PLAIN))
    assert fetch([image(PLAIN)], exact) == Fetched(PLAIN, "png")


def test_the_guarded_client_gives_no_more_than_it_was_made_for() -> None:
    with Poster(get_bytes_max=1000) as poster, pytest.raises(Invalid):
        poster.get("https://example.com/", bytes_max=1001)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(Invalid):
        FetchSettings(bytes_max=0)
    with pytest.raises(Invalid):
        PictureLimits(frames_max=0)
    with pytest.raises(Invalid):
        Bands(0.9, 0.1)


# Decoding.


def see(data: bytes, limits: PictureLimits = PLAIN_LIMITS) -> list[Image.Image] | Unseen:
    kind = kind_of(data)
    assert kind is not None
    return pictures(Fetched(data, kind), limits)


def seen(data: bytes) -> list[Image.Image]:
    found = see(data)
    assert isinstance(found, list), found
    return found


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_picture_is_seen_as_it_is(format: str) -> None:
    (picture,) = seen(encoded(canvas((64, 32), "red"), format))
    assert (picture.mode, picture.size) == ("RGB", (64, 32))
    red, green, blue = picture.getpixel((20, 20))
    assert red > 240 and green < 15 and blue < 15


def test_a_large_picture_is_made_smaller_and_a_turned_one_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    (picture,) = seen(encoded(canvas((4000, 2000)), "JPEG", exif=turned))
    assert picture.size == (PICTURE_SIDE_MAX // 2, PICTURE_SIDE_MAX)


@pytest.mark.parametrize(
    "data",
    [
        png_that_claims(50_000, 50_000),
        png_that_claims(1, 20_000),
        gif_whose_frame_is_larger(8_000, 8_000),
        webp_that_claims(16_000, 16_000),
    ],
    ids=["png", "narrow", "gif frame", "webp"],
)
def test_a_bomb_is_not_decoded(data: bytes) -> None:
    assert len(data) < 100_000
    found = see(data)
    assert isinstance(found, Unseen) and "pixels" in found.reason, found


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_picture_that_is_cut_off_is_unseen(format: str) -> None:
    whole = encoded(noise(), format)
    found = see(whole[: len(whole) // 2])
    assert isinstance(found, Unseen) and "decoded" in found.reason


@settings(max_examples=60, deadline=None)
@given(
    format=st.sampled_from(["PNG", "JPEG", "GIF", "WEBP"]),
    at=st.floats(0, 1),
    bytes_put=st.binary(min_size=1, max_size=40),
    cut=st.booleans(),
)
def test_bytes_made_to_break_a_decoder_break_nothing(format: str, at: float, bytes_put: bytes, cut: bool) -> None:
    whole = encoded(noise((40, 40)), format)
    place = 12 + int(at * (len(whole) - 12))
    broken = whole[:place] + bytes_put + (b"" if cut else whole[place + len(bytes_put) :])
    found = see(broken)
    assert isinstance(found, Unseen) or found, "there is a picture or a reason"


def test_all_that_differs_in_an_animation_is_looked_at() -> None:
    hidden = written("meet me behind the school", size=(500, 110))
    frames = [canvas((500, 110))] * 9
    frames[5] = hidden
    for format in ("GIF", "WEBP", "PNG"):
        assert len(seen(animation(frames, format))) == 2, format


@pytest.mark.parametrize("colour", ["black", "#777", "#bbb"])
def test_small_print_in_an_animation_is_looked_at(colour: str) -> None:
    small = canvas((640, 480))
    ImageDraw.Draw(small).text((40, 200), "meet me behind the school", fill=colour, font=ImageFont.load_default(14))
    assert len(seen(animation([canvas((640, 480)), small]))) == 2


def test_an_animation_with_too_much_in_it_is_unseen() -> None:
    colours = [canvas((50, 50), f"hsl({n * 40}, 100%, 50%)") for n in range(8)]
    found = see(animation(colours))
    assert isinstance(found, Unseen) and "different frames" in found.reason

    blinking = [canvas((50, 50), "white"), canvas((50, 50), "black")] * 6
    found = see(animation(blinking), PictureLimits(frames_max=10))
    assert isinstance(found, Unseen) and "longer" in found.reason
    found = see(animation(blinking), PictureLimits(pixels_of_all_frames_max=50 * 50 * 5))
    assert isinstance(found, Unseen) and "longer" in found.reason
    assert isinstance(see(animation(blinking)), list)


def test_what_is_transparent_is_seen_on_white_and_on_black() -> None:
    clear = Image.new("RGBA", (40, 40), (255, 255, 255, 0))
    on_white, on_black = seen(encoded(clear))
    assert on_white.getpixel((5, 5)) == (255, 255, 255) and on_black.getpixel((5, 5)) == (0, 0, 0)
    assert len(seen(encoded(Image.new("RGBA", (40, 40), (9, 9, 9, 255))))) == 1


def test_what_a_browser_would_show_otherwise_is_unseen() -> None:
    deep = see(encoded(Image.new("I;16", (40, 40), 40_000)))
    assert isinstance(deep, Unseen) and "I;16" in deep.reason

    plain = encoded(canvas((40, 40)))
    for gamma, shown in ((45_455, True), (2_000, False)):
        chunks = plain[:33] + chunk(b"gAMA", gamma.to_bytes(4, "big")) + plain[33:]
        assert isinstance(see(chunks), list) is shown, gamma
    usual = (31_270, 32_900, 64_000, 33_000, 30_000, 60_000, 15_000, 6_000)
    for primaries, shown in ((usual, True), ((*usual[:6], 90_000, 6_000), False)):
        chunks = plain[:33] + chunk(b"cHRM", struct.pack(">8I", *primaries)) + plain[33:]
        assert isinstance(see(chunks), list) is shown, primaries


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
def test_an_image_is_looked_at_in_the_colours_of_its_profile(format: str) -> None:
    """All white but for what nobody could tell from it; browsers make black of that."""
    hidden = written("meet me behind the school", colour="#fefefe")
    settings_ = {"PNG": {}, "JPEG": {"quality": 100}, "WEBP": {"lossless": True}}[format]
    (shown,) = seen(encoded(hidden, format, icc_profile=profile([0] * 255 + [65535]), **settings_))
    assert shown.convert("L").getextrema() == (0, 255)


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("mode", ["LA", "P", "RGB", "RGBA"])
def test_an_ordinary_profile_changes_nothing(mode: str) -> None:
    image = written("hello").convert(mode)
    (with_profile,), (without,) = seen(encoded(image, icc_profile=SRGB)), seen(encoded(image))
    assert max(most for _, most in ImageChops.difference(with_profile, without).getextrema()) <= 1  # type: ignore[misc]


def test_a_profile_that_cannot_be_applied_makes_an_image_unseen() -> None:
    for image, profile_ in ((canvas((40, 40)), b"no profile"), (canvas((40, 40)).convert("L"), SRGB)):
        assert isinstance(see(encoded(image, icc_profile=profile_)), Unseen)


def test_the_size_of_a_webp_is_read_as_pillow_reads_it() -> None:
    for settings_ in ({"lossless": True}, {"quality": 50}):
        assert webp_size(encoded(canvas((123, 77)), "WEBP", **settings_)) == (123, 77)
    assert webp_size(animation([canvas((123, 77)), canvas((123, 77), "red")], "WEBP")) == (123, 77)
    assert webp_size(b"RIFF0000WEBPVP8 ") is None


# Scoring and reading, with the real models.


@pytest.fixture(scope="module")
def reader() -> RapidOcr:
    return RapidOcr()


def test_what_was_drawn_here_is_safe() -> None:
    scorer = nsfw_scorer()
    safe = [canvas(), noise(), written("Rye bread, fresh at eight"), canvas((30, 900), "black"), canvas((1, 1))]
    assert scorer.score(safe) < 0.2
    assert scorer.score([]) == 0.0


def test_the_weights_name_the_classes_that_count() -> None:
    scorer = NudeNet()
    assert len(scorer._exposed()) == len(EXPOSED)
    assert pickle.loads(pickle.dumps(scorer)).score([canvas()]) == scorer.score([canvas()])


def test_without_nudenet_the_network_with_the_clear_licence_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nudenet" else find(name))
    assert nsfw_scorer().model == "open-nsfw"
    with pytest.raises(Unsupported, match=r"bucketmq\[nudenet\]"):
        NudeNet()


def test_other_weights_than_those_that_were_tested_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketmq.models.nsfw.OPEN_NSFW_SHA256", "0" * 64)
    with pytest.raises(Unsupported, match="are not those that were tested"):
        OpenNsfw()


def test_of_several_scorers_the_highest_counts() -> None:
    both = Highest(NudeNet(), Reddish())
    assert both.score([canvas(colour="red")]) == 1.0 and both.model == "nudenet-320n+reddish"


def test_text_is_read(reader: RapidOcr) -> None:
    reading = reader.read([written("You are worthless", "and everyone knows"), canvas(), noise(), canvas((3, 3))])
    assert reading == Reading("You are worthless\nand everyone knows")


# Judging.


class ByWords:
    """Flags bad words, and nothing else."""

    model = "words"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        self.calls.append([each.text for each in posts])
        return [self._judge(each.text.lower()) for each in posts]

    def _judge(self, text: str) -> Verdict:
        if "riddle" in text:
            return in_doubt(self.model, "it is a riddle")
        bad = {category for word, category in BAD_WORDS.items() if word in text}
        found = tuple(Category(name, name in bad, 0.95 if name in bad else 0.03) for name in CATEGORIES)
        return Verdict(found, self.model, rationale="By words.")


class Reddish:
    """How red pictures are: a score that can be drawn."""

    model = "reddish"

    def score(self, pictures: Sequence[Image.Image]) -> float:
        return max(each.resize((1, 1)).getpixel((0, 0))[0] / 255 for each in pictures)


class Unwritten:
    model = "unwritten"

    def __init__(self, text: str = "", *, unsure: bool = False) -> None:
        self.reading = Reading(text, unsure)

    def read(self, pictures: Sequence[Image.Image]) -> Reading:
        return self.reading


class Broken:
    model = "broken"

    def score(self, pictures: Sequence[Image.Image]) -> float:
        raise RuntimeError("no luck")

    def read(self, pictures: Sequence[Image.Image]) -> Reading:
        raise Unsupported("not installed")


@pytest.fixture
def gallery() -> Iterator[Endpoint]:
    """A server with an image on each path."""

    def script(request: Received) -> Step:
        drawn = {
            "/blue": canvas(colour="blue"),
            "/red": canvas(colour="red"),
            "/pink": canvas(colour="#600000"),
            "/bad": written("I will kill you", "tonight"),
        }
        name = request.path.split("?")[0]
        return image(encoded(drawn[name])) if name in drawn else Reply(404)

    with endpoint(script, path="") as there:
        yield there


def judge(*posts: Post, reader: object = None, scorer: object = None) -> list[Verdict]:
    parts = (ByWords(), Fetcher(HERE), scorer or Reddish(), reader or Unwritten())
    with WithImages(*parts) as classifier:  # type: ignore[arg-type]
        return classifier.classify(posts)


def test_text_and_image_count_both(gallery: Endpoint) -> None:
    fine, nude, unsure, insult, without, bad_text = judge(
        Post("1", "hello", f"{gallery.url}/blue"),
        Post("2", "hello", f"{gallery.url}/red"),
        Post("3", "hello", f"{gallery.url}/pink"),
        Post("4", "you are worthless", f"{gallery.url}/blue"),
        Post("5", "hello"),
        Post("6", "worthless", f"{gallery.url}/red"),
    )
    assert approved(fine) and fine.model == "words+reddish+unwritten" and "nsfw 0.00" in fine.rationale
    assert nude.violation and nude.doubt is None and nude.confidence == 1.0
    assert [each.name for each in nude.categories] == list(CATEGORIES)
    assert unsure.doubt is not None and "may not be safe for work" in unsure.doubt and not unsure.violation
    assert insult.violation and insult.doubt is None
    assert approved(without) and without.model == "words"
    assert {each.name for each in bad_text.categories if each.flagged} == {"nsfw", "harassment"}


def test_text_in_an_image_is_judged_like_text(gallery: Endpoint, reader: RapidOcr) -> None:
    verdict, other = judge(
        Post("1", "look at this", f"{gallery.url}/bad"),
        Post("2", "and this", f"{gallery.url}/bad"),
        reader=reader,
        scorer=OpenNsfw(),
    )
    assert verdict.violation and "violence" in {each.name for each in verdict.categories if each.flagged}
    assert other.violation and len(gallery.requests) == 1, "one image is fetched once for a call"


def test_text_that_could_not_be_read_or_judged_is_a_doubt(gallery: Endpoint) -> None:
    (unsure,) = judge(Post("1", "hello", f"{gallery.url}/blue"), reader=Unwritten("hm", unsure=True))
    assert unsure.doubt is not None and "read for sure" in unsure.doubt
    (riddle,) = judge(Post("1", "hello", f"{gallery.url}/blue"), reader=Unwritten("a riddle"))
    assert riddle.doubt is not None and "riddle" in riddle.doubt and len(riddle.categories) == 6


@pytest.mark.parametrize("url", ["https://127.0.0.1/x.png", "javascript:alert(1)", "https://10.0.0.1/x.png", " "])
def test_an_image_that_cannot_be_fetched_is_never_approved(url: str) -> None:
    with WithImages(ByWords(), Fetcher(FetchSettings(seconds_max=5)), Reddish(), Unwritten()) as classifier:
        harmless, bad = classifier.classify([Post("1", "hello", url), Post("2", "worthless", url)])
    assert harmless.doubt is not None and "fetched" in harmless.doubt and not approved(harmless)
    assert bad.violation and bad.doubt is not None, "what is known of the text is kept"


def test_a_model_that_stumbles_leaves_a_doubt_and_one_that_is_missing_is_said(gallery: Endpoint) -> None:
    (verdict,) = judge(Post("1", "hello", f"{gallery.url}/blue"), scorer=Broken())
    assert verdict.doubt is not None and "RuntimeError" in verdict.doubt
    with pytest.raises(Unsupported):
        judge(Post("1", "hello", f"{gallery.url}/blue"), reader=Broken())


@pytest.mark.parametrize("score", [float("nan"), -0.1, 1.1])
def test_a_score_that_is_none_is_a_doubt(gallery: Endpoint, score: float) -> None:
    class Odd:
        model = "odd"

        def score(self, pictures: Sequence[Image.Image]) -> float:
            return score

    (verdict,) = judge(Post("1", "hello", f"{gallery.url}/blue"), scorer=Odd())
    assert verdict.doubt is not None and "no score" in verdict.doubt


def test_no_more_images_at_a_time_than_allowed(gallery: Endpoint) -> None:
    two = threading.Barrier(2, timeout=20)
    lock = threading.Lock()
    now = most = 0

    class Counting:
        model = "counting"

        def score(self, pictures: Sequence[Image.Image]) -> float:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            two.wait()
            with lock:
                now -= 1
            return 0.0

    posts = [Post(str(n), "hello", f"{gallery.url}/blue?{n}") for n in range(6)]
    with WithImages(ByWords(), Fetcher(HERE), Counting(), Unwritten(), concurrency=2) as classifier:
        assert all(approved(each) for each in classifier.classify(posts))
    assert most == 2


def test_a_classifier_with_images_goes_to_other_processes(gallery: Endpoint) -> None:
    with (
        WithImages(ByWords(), Fetcher(HERE), Reddish(), Unwritten()) as classifier,
        pickle.loads(pickle.dumps(classifier)) as again,
    ):
        assert approved(again.classify([Post("1", "hello", f"{gallery.url}/blue")])[0])


def test_a_classifier_of_texts_approves_no_image() -> None:
    with TextOnly(ByWords()) as classifier:
        without, with_image = classifier.classify([Post("1", "hello"), Post("2", "hello", "https://example.com/a.png")])
    assert approved(without)
    assert with_image.doubt == "its image was not looked at"
