"""Removing secrets from text that is written, shown or raised: in URLs, headers and the
environment.
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


def holds_secret(url: str) -> bool:
    """Whether a source is a URL with a secret in it."""
    return bool(USER.search(url) or QUERY.search(url))
