"""Files of JSON lines, a value a line."""

import json


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_value(text):
    """The value in the last line of what a command prints."""
    return json.loads(text.splitlines()[-1])
