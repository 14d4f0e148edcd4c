"""What the start and the end of a workflow run say."""

import os
import sys
import sysconfig

from ragauge.config.launch import files, processes
from ragauge.config.launch.failed_jobs import failed_jobs

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
