"""Loading untrusted YAML: plain values, nested no deeper than a person writes."""

from typing import Any

import yaml

# libyaml's loader recurses in C without a limit, so deep nesting would overflow the stack
MAX_DEPTH = 100


def load(text: str, loader: type[yaml.CSafeLoader] = yaml.CSafeLoader) -> Any:
    """Return the value of a YAML text. Raises yaml.YAMLError: no valid YAML, nested deeper than
    `MAX_DEPTH`, or a value that looks like a number or a date but is neither.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return yaml.load(text, Loader=loader)
    except ValueError as error:  # 2024-13-01, or more digits than Python converts
        raise yaml.YAMLError(str(error)) from error
