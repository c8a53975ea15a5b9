"""The text of HTML: of its main content, without navigation and the like, where that can be found in bounded time.

The library that finds it takes time that grows with the square of a page: each mark is looked at for every one that it
stands in, all text so far is copied for every line, and lists in lists take more than that. So a page is walked once
before, in time that grows with its size alone; of one that would take the library long, the text is what that walk
found, navigation and all. What the parser takes of marks in marks cannot be known before, so `reader` bounds it.
"""

from __future__ import annotations

from typing import Any

WORK_MAX = 20_000_000_000
"""In characters copied: some second of the library. An article of 2 MiB with 10,000 paragraphs has half of it."""
NESTED_WORK = 1_000
"""A mark for each that it stands in."""
NESTED_MAX = 256
"""People do not write marks in marks deeper than that."""

HIDDEN = {"iframe", "noscript", "object", "script", "select", "style", "svg", "template", "textarea"}
CELLS = {"td", "th"}
LINES = {"br", "dd", "dt", "li", "tr"}
BLOCKS = {
    *("address", "article", "aside", "blockquote", "div", "dl", "fieldset", "figcaption", "figure", "footer", "form"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul"),
}
BEFORE = dict.fromkeys(CELLS, " ") | dict.fromkeys(LINES, "\n") | dict.fromkeys(BLOCKS, "\n\n")


def text_and_title(html: str) -> tuple[str, str]:
    """The text of a page, with headings as those of Markdown, and its title."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(html)
    title = tree.title or ""
    if tree.body is not None:
        headings = list(tree.body.query_selector_all("h1, h2, h3, h4, h5, h6"))
        for heading in reversed(headings):  # one that is given its text loses what stands in it
            heading.text = f"{'#' * int(heading.tag[1])} {' '.join(heading.text.split())}"
        walked = _Walked(tree.body)
        if walked.deepest > NESTED_MAX or walked.work > WORK_MAX:
            return walked.text(), title
    text = extract_plain_text(tree, main_content=True, alt_texts=False, links=False)
    if not text.strip():  # a page that is all frame
        text = extract_plain_text(tree, main_content=False, alt_texts=False, links=False)
    return text, title


class _Walked:
    """What a walk through a page finds: its text, and how much work the library would have with it."""

    def __init__(self, body: Any) -> None:
        from resiliparse.parse.html import traverse_dom

        self.work = self.deepest = 0
        self._parts: list[str] = []
        self._characters = 0
        self._hidden = 0
        traverse_dom(body, self._begin, self._end)

    def text(self) -> str:
        return "\n".join(" ".join(line.split()) for line in "".join(self._parts).split("\n"))

    def _begin(self, context: Any) -> None:
        tag = context.node.tag
        if tag == "#text":
            if not self._hidden:
                said = context.node.value
                self._characters += len(said)
                self._parts.append(said.replace("\n", " "))
            return
        self._hidden += tag in HIDDEN
        if tag in BEFORE:
            self.work += self._characters + NESTED_WORK * context.depth
            self.deepest = max(self.deepest, context.depth)
            self._parts.append(BEFORE[tag])

    def _end(self, context: Any) -> None:
        tag = context.node.tag
        self._hidden -= tag in HIDDEN
        if tag in BLOCKS:
            self._parts.append("\n\n")
