"""A report with a number that nothing supports is refused, whoever wrote it."""

from __future__ import annotations

import re

import pytest

from bucketmq.apps.research import report
from bucketmq.apps.research.checker import check_figures, check_html, check_markdown
from bucketmq.apps.research.report import Made

from .studies import plan_of
from .test_synthesis import TWO, closed_study


@pytest.fixture(scope="module")
def made() -> Made:
    return make()


def make(remarks: str = "", about: str = "Is 42 enough?") -> Made:
    plan = plan_of(simulator="simulators_here:partly", metrics=TWO, baseline={"x": 1}, about=about)
    first, closed, results = closed_study(plan)
    return report.make(plan, [first], closed, results, remarks)


def markdown(made: Made) -> str:
    return made.files["report.md"].decode()


def html(made: Made) -> str:
    return made.files["report.html"].decode()


def test_our_own_reports_pass(made: Made) -> None:
    assert made.problems() == []
    assert len(made.expected.numbers) > 30


def test_every_number_of_a_report_is_a_link_to_its_results(made: Made) -> None:
    text = re.sub(r'\[[^\]]*\]\(#[a-z0-9]+ "n[0-9]+"\)|`[^`]*`|<a id="e[0-9]+"></a>|\([^)]*\)|> .*', "", markdown(made))
    assert not re.search(r"[0-9]", text)
    for number in made.expected.numbers.values():
        assert made.expected.evidence[number.evidence].plan or made.expected.evidence[number.evidence].results


def test_html_and_markdown_have_the_same_numbers(made: Made) -> None:
    in_markdown = re.findall(r'\[([^\]]*)\]\(#([a-z0-9]+) "(n[0-9]+)"\)', markdown(made))
    in_html = re.findall(r'<a href="#([a-z0-9]+)" data-n="(n[0-9]+)">([^<]*)</a>', html(made))
    assert in_markdown == [(text, evidence, name) for evidence, name, text in in_html]


def changed_number(text: str) -> str:
    return re.sub(r'\[([0-9.]+)\](\(#e[0-9]+ "n(?!3\b)[0-9]+"\))', r"[9.87]\2", text, count=1)


TAMPERED = {
    "a changed number": (changed_number, "not 9.87"),
    "a sign before a number": (lambda text: re.sub(r"(\[[0-9.]+\]\(#e)", r"-\1", text, count=1), "-' before n"),
    "a number in the text": (lambda text: text.replace("## Points", "It took 3 days.\n\n## Points"), "'3' is a number"),
    "a number in a heading": (lambda text: text.replace("## Points", "## 17 points"), "'17' is a number"),
    "a number in words": (lambda text: text.replace("## Points", "Costs doubled.\n\n## Points"), "'doubled'"),
    "a fraction sign": (lambda text: text.replace("## Points", "About ½ less.\n\n## Points"), "'½'"),
    "other digits": (lambda text: text.replace("## Points", "٣ points.\n\n## Points"), "without evidence"),
    "a name that is none": (lambda text: text.replace("`x=2`", "`x=200`"), "'x=200' is not a name"),
    "a made-up number name": (lambda text: text.replace('"n8"', '"n999"'), "there is no such number"),
    "other evidence": (lambda text: re.sub(r'\(#e3 "', '(#e4 "', text, count=1), "not from e4"),
    "a result less in the evidence": (
        lambda text: re.sub(r'(<a id="e2"></a>[^\n]*), \[`[0-9a-f]+`\]\(results/[0-9a-f]+\.json\)', r"\1", text),
        "lists other results",
    ),
    "a result under another name": (
        lambda text: re.sub(r"results/[0-9a-f]{24}\.json", f"results/{'0' * 24}.json", text, count=1),
        "leads to",
    ),
    "a quote that is not the plan's": (lambda text: text.replace("Is 42 enough?", "Is 43 enough?"), "'43'"),
    "a figure that is none": (lambda text: text.replace("figures/cost.svg", "figures/cost2.svg"), "no figure"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_report_that_was_tampered_with_is_refused(made: Made, how: str) -> None:
    tamper, why = TAMPERED[how]
    text = markdown(made)
    changed = tamper(text)
    assert changed != text
    problems = check_markdown(changed, made.expected)
    assert problems
    assert re.search(why, " ".join(problems)), problems


HTML = {
    "a changed number": (r'(data-n="n8">)[^<]*', r"\g<1>9.87", "not 9.87"),
    "a sign before a number": (r'(<a href="#e[0-9]+" data-n)', "\u2212\\1", "before n[0-9]+ makes"),
    "a sign and nothing before a number": (r'(<a href="#e[0-9]+" data-n)', r"-<code></code>\1", "before n[0-9]+ makes"),
    "a number in the text": ("<h2>Points</h2>", "<h2>Points</h2><p>It took 3 days.</p>", "'3' is a number"),
    "a number in words": ("<h2>Points</h2>", "<h2>Points</h2><p>A dozen.</p>", "'dozen'"),
    "an entity": ("<h2>Points</h2>", "<h2>Points &#51;</h2>", "'3' is a number"),
    "a script": ("<h2>Points</h2>", "<script>document.title</script>", "<script> has no place"),
    "a handler": ("<h2>", '<h2 onclick="x()">', "onclick=.* has no place"),
    "a style": ("<style>", "<style>p::after{content:'17'}", "styles that are not"),
    "a comment": ("<h2>", "<!-- 3 --><h2>", "a comment"),
    "a way out": ('href="plan.json"', 'href="https://example.com/"', "leads out"),
    "an image from elsewhere": ('src="figures/cost.svg"', 'src="//example.com/a.svg"', "leads out"),
    "a name that is none": ("<code>x=2</code>", "<code>x=200</code>", "'x=200' is not a name"),
    "a name around a number": ("<h2>Points</h2>", "<h2>Points</h2><code>cost 17</code>", "'cost 17' is not a name"),
    "two numbers as one": (r'(<a href="#e[0-9]+" data-n[^/]*/a>)', r"\1\1", "behind n[0-9]+ makes"),
    "a unit behind a number": (r'(<a href="#e[0-9]+" data-n[^/]*/a>)', r"\1<code></code>k", "behind n[0-9]+ makes"),
    "a share of a hundred": (r'(<a href="#e[0-9]+" data-n[^/]*/a>)', r"\1 %", "not in percent"),
    "a description": ('content="width', 'content="3 times better, width', "has no place"),
    "words in the alternative text": ('alt="The', 'alt="The 3', "'3' is a number"),
    "less evidence": (r'(<li id="e2">[^\n]*), <a href="results/[^\n]*?</a></li>', r"\1</li>", "lists other results"),
}


@pytest.mark.parametrize("how", HTML)
def test_html_that_was_tampered_with_is_refused(made: Made, how: str) -> None:
    pattern, instead, why = HTML[how]
    text = html(made)
    changed = re.sub(pattern, instead, text, count=1)
    assert changed != text
    problems = check_html(changed, made.expected)
    assert problems
    assert re.search(why, " ".join(problems)), problems


def test_a_figure_that_was_changed_is_refused(made: Made) -> None:
    drawn = dict(made.expected.figures)
    assert check_figures(drawn, made.expected) == []
    drawn["cost.svg"] = drawn["cost.svg"].replace(b"circle", b"Circle", 1)
    assert check_figures(drawn, made.expected) == ["the figure cost.svg is not what the results give"]


SAID = [
    *("It is 3 times better.", "It is twice as good.", "Costs are [[n99999]].", "About ten.", "Costs fell: -[[n8]]."),
    *(
        "It fell by one percent.",
        "A tenth less.",
        "Two fifths.",
        "An order of magnitude.",
        "It failed once.",
        "A pair.",
    ),
    *("Costs quintupled.", "The twentieth trial.", "A trillion.", "Phase IV.", "A fourfold gain.", "A single failure."),
    *("On 1 May.", "In 2026.", "Between 3 and 4.", "About 3.50.", "97%", "1e3", "½", "٣", "三", "Ⅳ", "3️⃣", "🔟", "💯"),
    *(
        "[[n8]][[n8]]",
        "[[n8]],[[n9]]",
        "[[n8]].[[n9]]",
        "[[n8]]e[[n9]]",
        "[[n8]]–[[n9]]",
        "x[[n8]]",
        "[[n8]]k",
        "[[n8]]O",
    ),
    *("[[n8]]%", "[[n8]] %", "[[n8]] percent", "[[n8]] per cent", "[[n8]] thousand", "minus [[n8]]", "~[[n8]]"),
    *(
        "t\u200bwo",
        "se\u00adven",
        "\uff54\uff57\uff4f",
        "\U0001d42d\U0001d430\U0001d428",
        "twó",
        "tw\u043e",
    ),  # a Cyrillic o
]


@pytest.mark.parametrize("prose", SAID)
def test_prose_of_a_model_with_a_number_of_its_own_is_refused(prose: str) -> None:
    assert make(prose).problems()


def test_prose_may_name_the_numbers_of_the_report() -> None:
    said = make("The best point costs [[n8]] (up to [[n9]]), and nothing is clearer.\n\nIt holds, by some µs: fine.")
    assert said.problems() == []
    assert "## Remarks" in markdown(said)
    assert f"The best point costs [{said.expected.numbers['n8'].text}](#" in markdown(said)


def test_texts_of_others_cannot_become_part_of_the_page() -> None:
    hostile = make("<script> x </script> `y` [a](b)", about="<script>alert(1)</script> `x` [x](http://y) | 5")
    assert hostile.problems() == []
    assert "<script" not in html(hostile) + markdown(hostile)
