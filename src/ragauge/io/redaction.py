"""Removing secrets from text that is written, shown or raised: in URLs, headers and the
environment; and control characters from what is printed.
"""

import os
import re
from typing import Any

AFFECTS_RESULTS = False

HIDDEN = "***"
SHORTEST = 8  # characters of a secret of the environment; shorter ones would blot out words
SECRET_NAMES = (
    r"[\w.-]*(?:token|key|secret|passw|pwd|auth(?!or)|credential|session)[\w.-]*"
    r"|(?:[\w.-]*[_.-])?sig(?:nature)?|pass|x-(?:amz|goog|ms)-[\w-]+"
)
USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#'\"<>]*@")
QUERY = re.compile(rf"(?i)([?&;](?:{SECRET_NAMES})=)[^&;\s#'\"<>]+")
TOKENS = (  # secrets that are recognised anywhere in a text
    re.compile(r"(?i)(\bauthorization['\"]?[:=] ?['\"]?(?:bearer|basic) )[\w.~+/=-]+"),
    re.compile(r"(\bBearer )[\w.~+/=-]{16,}"),
    re.compile(r"()\b(?:hf_|sk-|ghp_|github_pat_|xox[abp]-)[\w-]{16,}"),
)
# all but tabs and the ends of lines, and marks that turn the direction of text
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ENVIRONMENT = re.compile(r"(?i).*(TOKEN|API_?KEY|ACCESS_?KEY|SECRET|PASSWORD)(_ID)?")


def redacted(text: str) -> str:
    """Replace by `***` the user and password of a URL, its parameters with names such as `token`,
    tokens in vendors' formats, and the values of environment variables such as `HF_TOKEN`.
    """
    text = QUERY.sub(rf"\g<1>{HIDDEN}", USER.sub(rf"\g<1>{HIDDEN}@", text))
    for form in TOKENS:
        text = form.sub(rf"\g<1>{HIDDEN}", text)
    secrets = {
        value
        for name, value in os.environ.items()
        if ENVIRONMENT.fullmatch(name) and len(value) >= SHORTEST
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def redacted_values(value: Any) -> Any:
    """Redact every text in a JSON value; keys stay."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_values(inner) for key, inner in value.items()}
    return [redacted_values(inner) for inner in value] if isinstance(value, list | tuple) else value


class PrintableStream:
    """A stream of text that shows control characters as escapes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> Any:
        return self._stream.write(CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def holds_secret(url: str) -> bool:
    """Whether a source is a URL with a secret in it."""
    return bool(USER.search(url) or QUERY.search(url))
