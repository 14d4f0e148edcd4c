"""What the start and the end of a workflow run say."""

import os
import subprocess
import sys
import sysconfig
from functools import partial
from types import SimpleNamespace

import pytest

from ragauge.config.launch import files, processes
from ragauge.config.launch.failed_jobs import failed_jobs
from ragauge.config.launch.module_use import begin_with
from ragauge.config.launch.processes import check_committed, lock_folder
from ragauge.errors import UserError

FAILED = """\
Error in rule answers:
    message: None
    jobid: 7
    output: a.jsonl
    log: {log} (check log file(s) for error details)
    shell:
        ragauge run
        (command exited with non-zero exit code)
"""


def test_failed_jobs_are_named_once_with_the_last_line_of_their_logs(tmp_path):
    own = tmp_path / "of a folder.log"
    snakemake = tmp_path / "snakemake.log"
    own.write_text("0%\rragauge: error: no room\n\n")
    twice = 2 * FAILED.format(log=own)
    snakemake.write_text(
        twice + FAILED.replace("jobid: 7", "jobid: 8").format(log=f"{tmp_path}/none.log, b.log")
    )
    first = f"answers failed: {own}: ragauge: error: no room"
    assert failed_jobs([str(snakemake)]) == [
        first,
        f"answers failed: {tmp_path}/none.log: no log",
    ]
    snakemake.write_text(f"{twice}Finished jobid: 7 (Rule: answers)\n")
    assert failed_jobs([str(snakemake), str(tmp_path / "never written")]) == []


def test_each_module_begins_once_however_often_it_is_read():
    """Snakemake reads a module for each `use rule`; two experiments are two modules."""
    begun = []
    workflow = SimpleNamespace(_onstart=lambda log: begun.append(f"outer {log}"))
    for module in ("first", "first", "second", "first"):
        outer = workflow._onstart
        workflow._onstart = None  # older versions have that of the module here
        begin_with(workflow, outer, module, partial(begun.append, module))
    workflow._onstart("log")
    assert begun == ["outer log", "first", "second"]


def test_modules_of_one_workflow_share_the_lock_of_their_folder(tmp_path):
    assert lock_folder(tmp_path / "lock") is lock_folder(tmp_path / "lock")


def test_a_command_runs_in_any_shell(tmp_path, monkeypatch):
    """By the Snakemake of this environment, with the commands of it first on the path."""
    command = files.workflow_command(tmp_path, tmp_path / "config.yaml", "2")
    assert command[:3] == [sys.executable, "-m", "snakemake"]
    assert command[-2:] == ["--cores", "2"]
    assert files.rerun_command(tmp_path) == "snakemake --cores all"
    (tmp_path / files.COMMAND).write_text("of a study")
    assert files.rerun_command(tmp_path) == "of a study"
    own = sysconfig.get_path("scripts")
    for path in ("/usr/bin", f"/usr/bin{os.pathsep}{own}"):
        monkeypatch.setenv("PATH", path)
        processes.use_own_commands()
        assert own in os.environ["PATH"].split(os.pathsep)
        assert os.environ["PATH"].count(own) == 1


def git(folder, *arguments):
    settings = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_reference_run_of_uncommitted_code_is_refused(tmp_path):
    module = tmp_path / "src" / "ragauge" / "text.py"
    module.parent.mkdir(parents=True)
    module.write_text("X = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    check_committed("reference-tiny", module)
    module.write_text("X = 2\n")
    check_committed("tiny", module)  # other runs may be of any code
    with pytest.raises(UserError, match=r"reports/reference-tiny: 1 files .*src/ragauge/text\.py"):
        check_committed("reference-tiny", module)
