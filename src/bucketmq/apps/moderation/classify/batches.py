"""Claude for back-fills: many posts at half the price, within a day. Submit, look, collect, in processes that may die.

Nothing has to be remembered but the ids of batches. Every request carries a name (`custom_id`) made of a digest of what
was asked and of the mark that its answer must repeat, so any later process that has the posts can match results with
them, in whatever order they come, and sees which posts have none yet.

A submission that got no answer may have been accepted all the same; then its posts are paid for twice, and nothing
else happens: `collect` takes the first result of a post that is a judgement.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.moderation.classify.answer import verdict_of
from bucketmq.apps.moderation.classify.claude import after_all, no_judgement, not_shown, question
from bucketmq.apps.moderation.classify.prompt import PROMPT
from bucketmq.apps.moderation.record import Post, Verdict
from bucketmq.errors import BucketMQError, Denied, Invalid, NotFound, Unavailable
from bucketmq.models.budget import Budget, Usage
from bucketmq.models.claude import PLAIN_SETTINGS, ClaudeSettings, Message, OfSettings, connect, input_tokens_at_most

if TYPE_CHECKING:
    import httpx2

POSTS_MAX = 1_000
"""In one batch. The API takes more; this bounds what is sent in one request and what is read of one file."""
DISCOUNT = 0.5
"""What a request in a batch costs, against one alone."""

_NAME = re.compile(r"([0-9a-f]{40})-([0-9a-f]{16})\Z")
_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")


class Progress(msgspec.Struct, frozen=True):
    """How far a batch is."""

    batch_id: str
    ended: bool
    waiting: int
    succeeded: int
    failed: int
    """Refused, cancelled or expired: these posts are in doubt, or may be submitted again."""


class _Counts(msgspec.Struct, frozen=True):
    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class _Batch(msgspec.Struct, frozen=True):
    """What the API says of a batch, as far as it matters here."""

    id: str
    processing_status: str
    request_counts: _Counts


class _Line(msgspec.Struct, frozen=True):
    custom_id: str
    result: dict[str, Any]


class ClaudeBatches(OfSettings):
    """Submits posts in batches and collects their verdicts. `close` when done."""

    def __init__(self, settings: ClaudeSettings = PLAIN_SETTINGS, *, api_key: str = "") -> None:
        """Without `api_key`, `ANTHROPIC_API_KEY` is read."""
        self.settings = settings
        self.budget = Budget(settings.limits)
        self._client = connect(settings, api_key)

    def submit(self, posts: Sequence[Post]) -> Iterator[str]:
        """Send posts, one request for each batch; yields each batch's id as soon as it is accepted: keep it.

        Posts that are too long to be shown are left out, and `collect` has a doubt about each; so are those beyond the
        budget, which have no result and can be submitted later. What was set aside of the budget stays spent.
        """
        shown = [post for post in posts if not_shown(post) is None]
        for start in range(0, len(shown), POSTS_MAX):
            requests = self._requests(shown[start : start + POSTS_MAX])
            if requests:
                yield self._batch("POST", "/v1/messages/batches", {"requests": requests}).id

    def look(self, batch_id: str) -> Progress:
        """How far a batch is. One request."""
        batch = self._batch("GET", f"/v1/messages/batches/{_checked(batch_id)}")
        counts = batch.request_counts
        failed = counts.errored + counts.canceled + counts.expired
        return Progress(batch_id, batch.processing_status == "ended", counts.processing, counts.succeeded, failed)

    def collect(self, batch_ids: Iterable[str], posts: Sequence[Post]) -> list[Verdict | None]:
        """The verdict on each post, in their order; None for those of which no batch that ended has a result.

        Two requests for each batch. What failed in one batch and succeeded in another counts as succeeded.
        """
        found: dict[str, Verdict] = {}
        by_digest = {_digest(post, self.settings.model): post for post in posts}
        for batch_id in batch_ids:
            if not self.look(batch_id).ended:
                continue
            for line in self._lines(batch_id):
                name = _NAME.match(line.custom_id)
                if name is None or (post := by_digest.get(name[1])) is None:
                    continue
                verdict = self._verdict(post, line.result, name[2])
                if name[1] not in found or (found[name[1]].doubt is not None and verdict.doubt is None):
                    found[name[1]] = verdict
        judged: list[Verdict | None] = []
        for post in posts:
            why = not_shown(post)
            judged.append(
                found.get(_digest(post, self.settings.model)) if why is None else no_judgement(why, self.settings)
            )
        return judged

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _requests(self, posts: Sequence[Post]) -> list[dict[str, Any]]:
        made: dict[str, dict[str, Any]] = {}
        for post in posts:
            digest, (mark, params) = _digest(post, self.settings.model), question(post, self.settings)
            at_most = Usage(input_tokens_at_most(params), self.settings.output_tokens_max)
            if digest not in made and not isinstance(self.budget.take(at_most, discount=DISCOUNT), str):
                made[digest] = {"custom_id": f"{digest}-{mark}", "params": params}
        return list(made.values())

    def _verdict(self, post: Post, result: dict[str, Any], mark: str) -> Verdict:
        if result.get("type") != "succeeded":
            return no_judgement(f"its request in the batch ended as {str(result.get('type'))[:40]!r}", self.settings)
        try:
            message = msgspec.convert(result.get("message"), Message)
        except msgspec.ValidationError:
            return no_judgement("its result in the batch is not a message", self.settings)
        return after_all(post, verdict_of(message, mark=mark))

    def _lines(self, batch_id: str) -> Iterator[_Line]:
        body = self._send("GET", f"/v1/messages/batches/{batch_id}/results", None)
        for line in body.content.splitlines():
            try:
                yield msgspec.json.decode(line, type=_Line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # whatever it was about has no result, and can be asked again

    def _batch(self, method: str, path: str, body: object = None) -> _Batch:
        try:
            return msgspec.json.decode(self._send(method, path, body).content, type=_Batch)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable(f"{self.settings.base_url} did not describe a batch; try again later") from None

    def _send(self, method: str, path: str, body: object) -> httpx2.Response:
        """One request. The SDK's own way to results goes wherever the API says, key in hand; this one does not."""
        import anthropic
        import httpx2

        failure: BucketMQError
        try:
            if method == "GET":
                return self._client.get(path, cast_to=httpx2.Response)
            return self._client.post(path, cast_to=httpx2.Response, body=body)
        except anthropic.APIStatusError as error:
            failure = self._refusal(error.status_code, path)
        except anthropic.AnthropicError as error:
            failure = Unavailable(f"no answer from {self.settings.base_url}{path} ({type(error).__name__}); try again")
        raise failure

    def _refusal(self, status: int, path: str) -> BucketMQError:
        where = f"{self.settings.base_url}{path}"
        if status in (401, 403):
            return Denied(f"{where} refused the key with status {status}; check ANTHROPIC_API_KEY")
        if status == 404:
            return NotFound(f"{where} is not there; the batch's id may be wrong, or its results are gone after 29 days")
        if status in (408, 409, 429) or status >= 500:
            return Unavailable(f"{where} answered with status {status}; try again later")
        return Invalid(f"{where} refused the request with status {status}; check the model and the settings")


def _digest(post: Post, model: str) -> str:
    """What was asked: the same for the same post, revision, prompt and model, in any process."""
    parts = msgspec.json.encode((post.id, post.revision, post.text, post.media_url, PROMPT, model))
    return hashlib.sha256(parts).hexdigest()[:40]


def _checked(batch_id: str) -> str:
    if not _BATCH_ID.match(batch_id):
        raise Invalid(f"{batch_id[:120]!r} is not the id of a batch")
    return batch_id
