"""A reference run is of code that a commit has: the workflow refuses others before it begins."""

import os
import shutil
import subprocess

from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import configure, copy_workflow, needs_snakemake, snakemake

pytestmark = needs_snakemake


def git(folder, *arguments):
    settings = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_reference_run_of_uncommitted_code_is_refused(root, tmp_path, preloaded, monkeypatch):
    folder = copy_workflow(root, tmp_path)
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "reports").mkdir()
    (folder / "reports/table.csv").write_text("1\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "--force", "src", "workflow", "configs", "reports")
    git(folder, "commit", "--quiet", "--message", "all")
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH')}")
    write_checkpoint(folder / "model")
    write_questions(folder / "few.jsonl", 2)
    made = {}
    for name in ("reference-tiny", "tiny"):
        made[name] = f"results/{name}/data/nq_open.jsonl"
        configure(folder, {"naive": {}}, name=name)

    def run(name):
        config = ("--configfile", f"{name}.yaml")
        return snakemake(folder, made[name], "--cores", "1", *config, commands=preloaded)

    changed = folder / "src/ragauge/text.py"
    changed.write_text(f"{changed.read_text()}\n# changed\n")
    (folder / "reports/table.csv").write_text("2\n")  # as a run that goes on has written it
    refused = run("reference-tiny")
    assert refused.returncode == 2
    [line] = [line for line in refused.stderr.splitlines() if "error" in line]
    assert line.startswith("ragauge: error: reports/reference-tiny: 1 files have uncommitted")
    assert "src/ragauge/text.py" in line
    assert not (folder / made["reference-tiny"]).exists()
    assert run("tiny").returncode == 0, "other runs may be of any code"
    git(folder, "commit", "--quiet", "--message", "changed", "src")
    done = run("reference-tiny")
    assert done.returncode == 0, done.stderr
    assert (folder / made["reference-tiny"]).is_file()
