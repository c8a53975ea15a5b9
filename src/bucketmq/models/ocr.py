"""Reads the text in pictures with RapidOCR, whose models come inside its wheel. What it means is decided elsewhere.

Lines come as people read them, column by column: `reading_order`.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from bucketmq.errors import Unsupported
from bucketmq.models.reading_order import Line, in_reading_order

if TYPE_CHECKING:
    from PIL.Image import Image

READ, GLIMPSED = 0.6, 0.3
"""A line read with at least the first confidence is text; below the second it is a pattern that looks like some."""


class Reading(msgspec.Struct, frozen=True):
    """The text of some pictures."""

    text: str
    unsure: bool = False
    """There is text that could not be read for sure."""


class Reader(Protocol):
    """Reads what is written in pictures."""

    @property
    def model(self) -> str: ...

    def read(self, pictures: Sequence[Image]) -> Reading:
        """All lines of all pictures, each once. Called from any thread."""
        ...


class RapidOcr:
    """PP-OCR by RapidOCR on onnxruntime, one thread for a picture. About a second for a picture with two lines."""

    model = "rapidocr"

    def __init__(self) -> None:
        if importlib.util.find_spec("rapidocr") is None:
            raise Unsupported("text in images needs rapidocr; run: pip install 'bucketmq[images]'")
        self._lock = threading.Lock()
        self._engine: Any = None

    def read(self, pictures: Sequence[Image]) -> Reading:
        lines: dict[str, None] = {}
        unsure = False
        for picture in pictures:
            page = self.read_page(picture)
            lines |= dict.fromkeys(page.text.splitlines())
            unsure |= page.unsure
        return Reading("\n".join(lines), unsure)

    def read_page(self, picture: Image) -> Reading:
        """All lines of one picture, as often as they are there."""
        import numpy as np

        found = self._loaded()(np.ascontiguousarray(np.asarray(picture)[:, :, ::-1]))  # it wants blue before red
        lines: list[Line] = []
        unsure = False
        boxes = found.boxes if found.boxes is not None else ()
        for box, text, score in zip(boxes, found.txts or (), found.scores or (), strict=True):
            if score >= READ:
                corners = np.asarray(box)
                lines.append(Line(text, *map(float, (*corners.min(axis=0), *corners.max(axis=0)))))
            elif score >= GLIMPSED:
                unsure = True
        return Reading("\n".join(each.text for each in in_reading_order(lines)), unsure)

    def __reduce__(self) -> tuple[type[RapidOcr], tuple[()]]:
        return RapidOcr, ()

    def _loaded(self) -> Any:
        with self._lock:
            if self._engine is None:
                from rapidocr import RapidOCR

                self._engine = RapidOCR(
                    params={
                        "Global.log_level": "critical",
                        "Global.text_score": GLIMPSED,
                        "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                    }
                )
            return self._engine
