"""What the stages say of an image: verdict, text, and a description that never guesses."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import bucketmq
from apps.images.drawn import drawing, jpeg, photo, tiff_that_claims
from apps.moderation.drawing import animation, canvas, encoded, noise, written
from bucketmq.apps.images import alt
from bucketmq.apps.images.alt import MakeUses, Uses, composed, described, sentence_of
from bucketmq.apps.images.decode import Unreadable
from bucketmq.apps.images.drawing import LEFT, RIGHT, notice
from bucketmq.apps.images.facts import AltFacts, TextFacts, WithModel
from bucketmq.apps.images.kinds import colours_of, kind_of_picture, measured
from bucketmq.apps.images.places import STAGES, facts_key, image_of, thumb_key
from bucketmq.apps.images.policy import judged
from bucketmq.apps.images.rows import alt_with_text, row_of
from bucketmq.apps.images.text import read
from bucketmq.errors import Invalid, Unavailable
from bucketmq.models.nsfw import nsfw_scorer
from bucketmq.models.ocr import RapidOcr
from bucketmq.models.pictures import PLAIN_LIMITS, PictureLimits
from bucketmq.models.reading_order import Line, in_reading_order


class Scores:
    """A model that says what the test wants."""

    model = "made-up"

    def __init__(self, score: float | Exception) -> None:
        self._score = score
        self.seen: list[Any] = []

    def score(self, pictures: Any) -> float:
        self.seen += pictures
        if isinstance(self._score, Exception):
            raise self._score
        return self._score


def policy_of(data: bytes, score: float | Exception = 0.0) -> tuple[str, Any, str]:
    return judged(data, WithModel(Scores(score), PLAIN_LIMITS))


@pytest.mark.parametrize(
    ("score", "verdict"), [(0.0, "fine"), (0.19, "fine"), (0.2, "unsure"), (0.5, "flagged"), (1.0, "flagged")]
)
def test_a_score_is_a_verdict_and_between_the_two_a_person_looks(score: float, verdict: str) -> None:
    said, number, reason = policy_of(jpeg(photo()), score)
    assert (said, number) == (verdict, score) and bool(reason) == (verdict != "fine")


def test_what_a_model_cannot_judge_is_unknown_and_never_fine() -> None:
    assert policy_of(jpeg(photo()), ValueError("odd"))[0] == "unknown"
    assert policy_of(jpeg(photo()), float("nan"))[0] == "unknown"
    verdict, score, reason = policy_of(animation([canvas((40, 40), (28 * n, 0, 0)) for n in range(9)]))
    assert (verdict, score) == ("unknown", None) and "more than 6 different frames" in reason


def test_every_frame_and_both_backgrounds_are_judged() -> None:
    scores = Scores(0.0)
    judged(
        animation([canvas((60, 60), colour) for colour in ("red", "blue", "green")]), WithModel(scores, PLAIN_LIMITS)
    )
    assert len(scores.seen) == 3
    scores = Scores(0.0)
    judged(encoded(Image.new("RGBA", (60, 60), (0, 0, 0, 100))), WithModel(scores, PLAIN_LIMITS))
    assert len(scores.seen) == 2


def test_a_tiff_and_sixteen_bits_are_judged_as_they_are_seen() -> None:
    for data in (encoded(photo(), "TIFF"), encoded(Image.fromarray(np.full((64, 64), 40_000, dtype=np.uint16)))):
        scores = Scores(0.0)
        assert judged(data, WithModel(scores, PLAIN_LIMITS))[0] == "fine"
        assert np.asarray(scores.seen[0]).mean() > 60


def test_policy_has_limits_too() -> None:
    with pytest.raises(Unreadable, match="the limits are"):
        judged(jpeg(photo()), WithModel(Scores(0.0), PictureLimits(pixels_max=100)))


def test_what_is_drawn_here_is_fine_for_the_real_model() -> None:
    judge = WithModel(nsfw_scorer(), PLAIN_LIMITS)
    for image in (photo(), drawing(), notice()):
        assert judged(encoded(image), judge)[0] == "fine"


@pytest.fixture(scope="module")
def reads() -> WithModel[RapidOcr]:
    return WithModel(RapidOcr(), PLAIN_LIMITS)


def test_columns_are_read_one_after_the_other(reads: WithModel[RapidOcr]) -> None:
    """By height alone, as the recogniser gives them, the lines of both columns would alternate."""
    lines = read(encoded(notice()), reads).text.splitlines()
    assert lines == ["The bakery of Ada Example, Main Street", *LEFT, *RIGHT]


def test_a_page_on_its_side_is_read(reads: WithModel[RapidOcr]) -> None:
    tags = Image.Exif()
    tags[0x0112] = 6
    data = encoded(written("Rye bread").transpose(Image.Transpose.ROTATE_90), "JPEG", exif=tags, quality=95)
    assert read(data, reads).text == "Rye bread"


def test_all_pages_of_a_tiff_are_read(reads: WithModel[RapidOcr]) -> None:
    pages = [written("Rye bread"), written("fresh at eight")]
    data = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert read(data, reads).text == "Rye bread\nfresh at eight"


def test_a_page_that_is_too_large_is_refused_before_it_is_decoded(reads: WithModel[RapidOcr]) -> None:
    with pytest.raises(Unreadable, match="12000 x 9000 pixels; the limits are"):
        read(tiff_that_claims([(1, 1), (12_000, 9_000)]), reads)


def test_a_picture_without_text_has_none(reads: WithModel[RapidOcr]) -> None:
    assert read(jpeg(photo()), reads).text == ""
    assert read(encoded(drawing()), reads).text == "", "an edge is not a dash"
    assert read(encoded(canvas((8, 8))), reads).text == ""


def box(text: str, left: float, top: float, width: float = 90, height: float = 10) -> Line:
    return Line(text, left, top, left + width, top + height)


def test_reading_order_is_headline_columns_foot() -> None:
    lines = [box("headline", 0, 0, 200), box("foot", 0, 100, 200)]
    for number in range(4):
        lines += [box(f"a{number}", 0, 20 + 15 * number), box(f"b{number}", 110, 21 + 15 * number)]
    found = [line.text for line in in_reading_order(sorted(lines, key=lambda line: line.top))]
    assert found == ["headline", "a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "foot"]


def test_reading_order_keeps_sections_of_columns_apart() -> None:
    lines = [
        *(box(f"a{number}", 0, 15 * number) for number in range(2)),
        *(box(f"b{number}", 110, 15 * number) for number in range(2)),
        box("across", 0, 40, 200),
        *(box(f"c{number}", 0, 60 + 15 * number) for number in range(2)),
        *(box(f"d{number}", 110, 60 + 15 * number) for number in range(2)),
    ]
    found = [line.text for line in in_reading_order(lines[::-1])]
    assert found == ["a0", "a1", "b0", "b1", "across", "c0", "c1", "d0", "d1"]


def test_reading_order_loses_nothing_and_forgives_a_page_askew() -> None:
    lines = [box(f"{column}{row}", 110 * column, 15 * row + 4 * column, 100) for row in range(6) for column in range(3)]
    found = in_reading_order(lines)
    assert [line.text for line in found] == [f"{column}{row}" for column in range(3) for row in range(6)]
    assert in_reading_order([]) == [] and in_reading_order(lines[:1]) == lines[:1]


def screenshot() -> Image.Image:
    """Windows, buttons, lines of small text with soft edges."""
    image = Image.new("RGB", (800, 600), (245, 246, 249))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 800, 50), (47, 91, 215))
    draw.rounded_rectangle((40, 90, 760, 560), 12, "white", (210, 214, 224))
    for row in range(14):
        draw.text(
            (70, 110 + 31 * row),
            "queue jobs   12 ready   3 in flight   0 dead",
            (27, 33, 48),
            ImageFont.load_default(18),
        )
        draw.rounded_rectangle((610, 110 + 31 * row, 720, 132 + 31 * row), 8, [(26, 127, 75), (192, 54, 44)][row % 2])
    return image


def scan() -> Image.Image:
    image = Image.new("L", (1000, 1400), 255)
    for row in range(30):
        ImageDraw.Draw(image).text(
            (80, 80 + 40 * row), "The quick brown fox jumps over the lazy dog again", 0, ImageFont.load_default(34)
        )
    return image.point(lambda level: 255 * (level > 128)).convert("RGB")


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (photo(), "photo"),
        (photo((1200, 800), 3), "photo"),
        (photo().convert("L").convert("RGB"), "photo"),
        (drawing(), "drawing"),
        (screenshot(), "screenshot"),
        (scan(), "scan"),
    ],
)
def test_kinds_that_lie_apart_are_told_apart(image: Image.Image, kind: str) -> None:
    found, confidence = kind_of_picture(measured(image))
    assert found == kind and 0.6 <= confidence < 1


@pytest.mark.parametrize(
    "image", [noise(), canvas(), canvas((1, 1)), Image.linear_gradient("L").convert("RGB"), canvas((3000, 2), "red")]
)
def test_what_cannot_be_told_is_just_an_image(image: Image.Image) -> None:
    """Never a wrong guess."""
    assert kind_of_picture(measured(image)) == ("unknown", 0.0)
    said = composed(image)
    assert (said["alt"], said["kind"]) == ("An image.", "unknown") and said["confidence"] < 0.6


def test_a_guess_that_is_not_sure_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alt, "kind_of_picture", lambda _: ("photo", 0.59))
    assert composed(photo())["alt"] == "An image." and composed(photo())["kind"] == "unknown"


def test_colours_are_named_as_people_would() -> None:
    for name, colour in {"red": (210, 30, 30), "white": "white", "black": "black", "dark blue": (20, 30, 90)}.items():
        assert colours_of(Image.new("RGB", (50, 50), colour)) == (name,)
    assert colours_of(drawing())[0] == "light blue" and "green" in colours_of(drawing())


def said(**changes: Any) -> AltFacts:
    plain = AltFacts(
        key="raw/a",
        version="1",
        stage_version=1,
        alt="A photo.",
        alt_source="embedded",
        confidence=0.9,
        kind="photo",
        colours=(),
        digest="",
        model="embedded-1",
    )
    return msgspec.structs.replace(plain, **changes)


def written_there(text: str, version: str = "1") -> TextFacts:
    return TextFacts(key="raw/a", version=version, stage_version=1, text=text, lines=1, unsure=False, model="")


def test_the_text_joins_the_description_and_a_sentence_of_claude_stands_as_it_is() -> None:
    assert alt_with_text(said(), written_there("Rye\nbread"))[0] == "A photo. Text in it: Rye bread"
    assert alt_with_text(said(alt="An image."), written_there("Rye"))[0] == "An image. Text in it: Rye"
    assert alt_with_text(said(), written_there(""))[0] == "A photo." == alt_with_text(said(), None)[0]
    assert alt_with_text(said(alt="A cat.", alt_source="claude"), written_there("Rye"))[:2] == ("A cat.", "claude")
    assert alt_with_text(None, written_there("Rye")) == (None, None, None)
    long = alt_with_text(said(), written_there("word " * 200))[0]
    assert long is not None and len(long) < 280 and long.endswith("word …")


def test_text_of_an_older_version_is_not_of_this_one() -> None:
    assert alt_with_text(said(version="2"), written_there("Rye", "1"))[0] == "A photo."
    row = row_of("raw/a", "2", {"alt": said(version="2"), "text": written_there("Rye", "1")})
    assert not row["complete"] and (row["alt_version"], row["text_version"]) == ("2", "1")


def test_names_of_places_lead_back_to_the_image() -> None:
    for stage in STAGES:
        assert image_of(facts_key("raw/a/b.jpg", stage)) == "raw/a/b.jpg"
    for other in ("facts/x/raw/a.json", "facts/alt/thumbs/a.json", "facts/alt/raw/a", thumb_key("raw/a", 256), "raw/a"):
        assert image_of(other) is None


class Speaks:
    """Claude, as the test wants it."""

    model = "claude-made-up"

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.pictures: list[Image.Image] = []

    def describe(self, picture: Image.Image) -> str | None:
        self.pictures.append(picture)
        return sentence_of(self.answers.pop(0))


def described_by(model: Speaks, data: bytes, bucket: Any = None) -> AltFacts:
    row = {"key": "raw/a.jpg", "content": data, "content_version": "7", "version": "7"}
    return described(row, Uses(PLAIN_LIMITS, model, bucket))


def test_a_sentence_of_claude_is_asked_for_once_for_an_image() -> None:
    model, data = Speaks("A green hill under a blue sky."), jpeg(photo((2000, 1500)))
    with bucketmq.connect("memory://") as bucket:
        first = described_by(model, data, bucket)
        assert (first.alt, first.alt_source, first.model) == (
            "A green hill under a blue sky.",
            "claude",
            "claude-made-up",
        )
        assert model.pictures[0].size == (768, 576) and not model.pictures[0].getexif()
        bucket.put("facts/alt/raw/a.jpg.json", msgspec.json.encode(first))
        assert described_by(model, data, bucket) == first, "asking again would have failed: there is no second answer"
        model.answers.append("Something else.")
        assert described_by(model, jpeg(photo((300, 200))), bucket).alt == "Something else.", (
            "another image is another question"
        )


@pytest.mark.parametrize("answer", ["", "An image.", "An image", "x" * 400, "<b>A hill</b>"])
def test_an_answer_that_says_nothing_leaves_what_was_measured(answer: str) -> None:
    found = described_by(Speaks(answer), jpeg(photo()))
    assert found.alt_source == "embedded" and found.alt.startswith("A photo")


def test_claude_is_asked_not_to_name_people_and_sees_a_small_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")
    from bucketmq.testing.messages_api import messages_api

    asked: list[Any] = []

    def model(question: Any) -> str:
        asked.append(question)
        return "A hill."

    with messages_api(model) as there:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-made-up-key-for-tests-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", there.url)
        uses = MakeUses()()
        facts = described({"key": "raw/a", "content": jpeg(photo((1600, 1200))), "content_version": "1"}, uses)
        uses.close()
    assert (facts.alt, facts.alt_source) == ("A hill.", "claude")
    (question,) = asked
    assert "Never name, identify or guess who a person is" in str(question.params["system"])
    source = question.params["messages"][0]["content"][0]["source"]
    assert source["media_type"] == "image/jpeg"
    assert max(Image.open(io.BytesIO(base64.b64decode(source["data"]))).size) == 768


def test_without_a_key_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert MakeUses()().describer is None
    with pytest.raises(Invalid, match="there is no key"):
        MakeUses(describer="claude")()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-made-up-key-for-tests-0123456789")
    assert MakeUses(describer="embedded")().describer is None


def test_claude_being_away_buries_no_image() -> None:
    class Away(Speaks):
        def describe(self, picture: Image.Image) -> str | None:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        described_by(Away(), jpeg(photo()))
