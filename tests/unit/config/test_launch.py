"""What the start and the end of a workflow run say."""

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
