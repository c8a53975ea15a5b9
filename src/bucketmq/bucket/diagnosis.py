"""What an error of obstore, or of a request that we signed ourselves, means: for a write, and for people.

`bucketmq.bucket.objects` asks these functions and turns what they say into the port's answers and errors.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from obstore.exceptions import (
    AlreadyExistsError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from bucketmq.bucket.sending import CannotSign, HttpFailure
from bucketmq.errors import BucketMQError, Denied, Invalid, NotFound, Unavailable, Unsupported

_REFUSED = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND)

# obstore has no fields for the status and code of an answer, only this text. Its form is pinned by tests.
_STATUS_WORDS = "Server returned non-2xx status code: "
_STATUS = re.compile(_STATUS_WORDS + r"(\d{3})")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>|\"(?:reason|code)\": *\"(\w+)\"")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_CREDENTIALS = re.compile(
    r"Generic \w+ error: Error performing (?:token request|CreateSession request"
    r"|\w+ https?://(?:169\.254\.|\[fd00:ec2::|metadata\.google|oauth2\.google|sts\.|login\.microsoft))"
    r"|The operation lacked valid authentication credentials for path External \w+ credential provider"
)

_HALF_ANSWER = re.compile(r"Generic \w+ error: (?:Unable to [\w ]+: )?[\w-]+ Header missing from response")

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_BAD_CREDENTIALS = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
# Azure and the token servers of Google and AWS have no code of their own for it, only words.
_CLOCK_CODES = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_MAYBE_CLOCK = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_CLOCK_WORDS = re.compile(
    r"Request date header too old|The Date header in the request is incorrect|not valid in the specified time frame"
    r"|Signature (?:expired|not yet current)|Invalid JWT: Token must be a short-lived token|Request has expired"
)
_WRONG_REGION = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})


def is_refusal(error: Exception) -> bool:
    """Whether the condition of a request did not hold."""
    return isinstance(error, AlreadyExistsError | PreconditionError | FileNotFoundError) or _status(error) in _REFUSED


def lacks_bucket(error: Exception) -> bool:
    """Whether the answer says that there is no such bucket."""
    return _code(error) in _NO_BUCKET


def is_disliked(error: BucketMQError) -> bool:
    """Whether such a request cannot be made at all, or the store understood it and wants none of it."""
    if isinstance(error, Unsupported | Denied):
        return True
    cause = error.__cause__
    status = _status(cause) if isinstance(cause, Exception) else None
    return isinstance(cause, CannotSign) or (status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR)


def may_have_landed(error: Exception) -> bool:
    """Whether a write that failed like this may be in the store, now or later."""
    if _asks_for_credentials(error) or isinstance(error, _NEVER_SENT):
        return False
    status = _status(error)
    if status is None:
        return "redirect without LOCATION" not in str(error)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return False
    # S3 says 400 RequestTimeout when the body came too slowly.
    return (
        status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or _code(error) == "RequestTimeout"
    )


_NEVER_SENT = (InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)


def diagnosis(error: Exception) -> tuple[type[BucketMQError], str]:
    """Which error it is for the caller, and what the caller can do."""
    status, code = _status(error), _code(error)
    if code in _CLOCK_CODES or (status in _MAYBE_CLOCK and _CLOCK_WORDS.search(_answer(error))):
        return Denied, "this machine's clock differs too much from the store's: set it (NTP), then try again"
    if _asks_for_credentials(error):
        return Denied, "no credentials came: set them in the environment, name a profile, or give this machine a role"
    if isinstance(error, InvalidPathError):
        return Invalid, "use another key"
    if (
        "redirect without LOCATION" in str(error)
        or (isinstance(error, HttpFailure) and status == HTTPStatus.MOVED_PERMANENTLY)
        or code in _WRONG_REGION
    ):
        return Invalid, "the bucket is in another region: give it as region=..."
    if (
        isinstance(error, PermissionDeniedError | UnauthenticatedError)
        or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        or code in _BAD_CREDENTIALS
    ):
        return Denied, "check the credentials, and their permission to get, put, delete and list there"
    if _HALF_ANSWER.match(str(error)):
        return Unsupported, "what the server leaves out is needed for conditional writes; use another store"
    if isinstance(error, NotSupportedError) or status == HTTPStatus.NOT_IMPLEMENTED:
        return Unsupported, "this store lacks conditional writes; use one that has them"
    if status == HTTPStatus.NOT_FOUND:
        return NotFound, ""
    return Unavailable, "see whether the endpoint is right and up, then try again"


def _asks_for_credentials(error: Exception) -> bool:
    return _CREDENTIALS.match(str(error)) is not None


def _status(error: Exception) -> int | None:
    if isinstance(error, HttpFailure):
        return error.status
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str | None:
    if isinstance(error, HttpFailure):
        return error.code
    found = _CODE.search(_answer(error))
    return (found[1] or found[2]) if found else None


def _answer(error: Exception) -> str:
    """What the server said. Before and after that, the text may quote the key."""
    return str(error).partition(_STATUS_WORDS)[2].partition("\n\nDebug source:\n")[0]


def reason(error: Exception) -> str:
    """A few words for people. The whole text may quote a long answer; it is the cause of what is raised."""
    status, transport = _status(error), _TRANSPORT.search(str(error))
    if status is not None:
        return f"HTTP {status} {_code(error) or ''}".strip()
    if transport is not None:
        return _TRANSPORT_WORDS.get(transport[1], f"the request failed ({transport[1]})")
    return str(error).partition("\n")[0][:200]


_TRANSPORT_WORDS = {
    "Connect": "no connection",
    "Timeout": "no answer in time",
    "Interrupted": "the connection broke",
    "Request": "the connection broke",
    "Decode": "the answer could not be read",
}
