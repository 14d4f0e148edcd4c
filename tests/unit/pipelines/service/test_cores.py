"""Cores that a process is kept to, and lists of them that make no sense."""

import os
import subprocess
import sys

import pytest

from ragauge.errors import UserError
from ragauge.pipelines.service.cores import pin

CODE = """
import os, sys
from ragauge.pipelines.service.cores import pin
pin(sys.argv[1])
print(*os.sched_getaffinity(0))
"""


@pytest.mark.parametrize("template", ["{0}", "{0},{0}", "{0}-{0}"])
def test_a_process_is_kept_to_its_cores(template):
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", CODE, template.format(core)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(core)]


@pytest.mark.parametrize("text", ["", "a", "0-", "-1", "0,,1", "3-0", "99999", "0-99999999999999"])
def test_a_list_that_makes_no_sense_is_told(text):
    before = os.sched_getaffinity(0)
    with pytest.raises(UserError, match=r"^cores '"):
        pin(text)
    assert os.sched_getaffinity(0) == before
