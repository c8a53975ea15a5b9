"""JSON lines, logfmt, OpenTelemetry's logs as JSON. Fields go by the names that loggers use; what has none is text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bucketmq.apps.logs.parse.formats import logfmt
from bucketmq.apps.logs.parse.lines import TEXT_CHARS_MAX, Line, level_in, level_of, level_of_number, time_of

TIMES = ("time", "timestamp", "ts", "@timestamp", "at", "datetime", "date", "eventTime", "t")
LEVELS = ("level", "severity", "lvl", "loglevel", "log.level", "severityText", "levelname", "priority")
TEXTS = ("message", "msg", "text", "log", "body", "event", "@message", "textPayload")
INNER = ("fields", "jsonPayload", "log")
"""Objects in which some loggers put text and level."""
KEYS = ("trace_id", "traceId", "request_id", "requestId", "session_id", "sessionId", "correlation_id", "correlationId")
ERRORS = ("exception", "error", "err", "stack", "stacktrace", "exc_info")

_IS_SECRET = re.compile(r"(?i)session|token|cookie|auth")
"""Names of fields: such a value lets anybody impersonate its owner."""

_decode = msgspec.json.Decoder().decode


def structured(line: str, *, key_field: str = "", at: float | None = None) -> Iterator[Line] | None:
    """The lines that a line holds which is JSON or logfmt; None if it is neither. `at` is for those without a time."""
    if line[:1] == "{" and line[:TEXT_CHARS_MAX].strip():
        return from_json(line, key_field=key_field, at=at)
    if "=" in line[:40] and len(line) < TEXT_CHARS_MAX and (fields := logfmt(line)) is not None:
        found = _line(fields, line, key_field)
        if found.level or found.at is not None:
            return iter((found._replace(at=at) if found.at is None else found,))
    return None


def from_json(text: str, *, key_field: str = "", at: float | None = None) -> Iterator[Line] | None:
    """The lines that a line of JSON holds: one, or those of an OTLP request; None if it is not an object."""
    try:
        found = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    if not isinstance(found, dict):
        return None
    if "resourceLogs" in found:
        return otlp(found, key_field=key_field)
    line = _line(found, text, key_field)
    return iter((line._replace(at=at) if line.at is None else line,))


def _line(fields: Mapping[str, Any], whole: str, key_field: str) -> Line:
    for name in INNER:
        if isinstance(inner := fields.get(name), dict):
            fields = {**inner, **fields}
    text, error = _first_text(fields, TEXTS).rstrip("\n"), _first_text(fields, ERRORS)
    if not text and not error:
        text = whole
    elif error and error not in text:
        text = f"{text} | {_last_line(error)}" if text else _last_line(error)
    at = next((time for name in TIMES if (time := time_of(fields.get(name))) is not None), None)
    level = next((named for name in LEVELS if (named := level_of(fields.get(name)))), "") or level_in(text)
    return Line(at, level, text[:TEXT_CHARS_MAX], key_of(fields, key_field))


def _first_text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        found = fields.get(name)
        if isinstance(found, str) and found:
            return found
    return ""


def key_of(fields: Mapping[str, Any], key_field: str) -> str:
    for name in (key_field,) if key_field else KEYS:
        found = fields.get(name)
        if isinstance(found, str | int) and found != "":
            text = str(found)[:200]
            return hidden(text, "session") if _IS_SECRET.search(name) else text
    return ""


def hidden(key: str, what: str) -> str:
    """A key that is a secret, as one that is not, and is the same wherever it comes."""
    return f"{what}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _last_line(text: str) -> str:
    """Of a stack trace, the line that names the error: the first, or in Python the last."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0]).strip()


def otlp(found: Mapping[str, Any], *, key_field: str = "") -> Iterator[Line]:
    """The records of an ExportLogsServiceRequest. What does not have its shape is left out, as the protocol allows."""
    for resource in _dicts(found.get("resourceLogs")):
        for scope in (*_dicts(resource.get("scopeLogs")), *_dicts(resource.get("instrumentationLibraryLogs"))):
            for record in _dicts(scope.get("logRecords")):
                yield _record(record, key_field)


def _record(record: Mapping[str, Any], key_field: str) -> Line:
    attributes = {str(each.get("key")): _value(each.get("value")) for each in _dicts(record.get("attributes"))}
    text = _value(record.get("body"))
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode() if text is not None else ""
    error = attributes.get("exception.type")
    if isinstance(error, str) and error not in text:
        text = f"{text} | {error}: {attributes.get('exception.message', '')}"
    at = time_of(record.get("timeUnixNano")) or time_of(record.get("observedTimeUnixNano"))
    level = level_of(record.get("severityText")) or _severity(record.get("severityNumber"))
    own = {**attributes, "traceId": record.get("traceId")}
    return Line(at, level, text[:TEXT_CHARS_MAX], key_of(own, key_field))


def _severity(number: object) -> str:
    """The level of a severity, which JSON may have by its name: SEVERITY_NUMBER_WARN2."""
    if isinstance(number, str):
        return level_of(number.removeprefix("SEVERITY_NUMBER_").rstrip("234"))
    return level_of_number(number) if isinstance(number, int) else ""


def _value(value: object) -> Any:
    """A value of OTLP: {"stringValue": ...} and the like."""
    if not isinstance(value, dict) or not value:
        return None
    kind, inner = next(iter(value.items()))
    match kind, inner:
        case "arrayValue", {"values": list() as values}:
            return [_value(each) for each in values]
        case "kvlistValue", {"values": list() as values}:
            return {str(each.get("key")): _value(each.get("value")) for each in _dicts(values)}
        case _:
            return inner


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
