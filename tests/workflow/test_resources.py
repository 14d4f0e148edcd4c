"""What the rules ask of a cluster, and that a profile's answer to where reaches every job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import workflow_folder

ON_GPUS = {"answers", "judgements", "latency", "machine", "pipeline", "retrofit", "sft_train"}
ALONE = {"index_training", "latency", "machine", "retrofit"}


def rules(root: Path) -> dict[str, str]:
    """The text of every rule that is no variation of another."""
    found = {}
    for path in sorted((root / "workflow" / "rules").glob("*.smk")):
        found |= dict(re.findall(r"^rule (\w+):\n((?:(?: .*)?\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_every_rule_says_its_cores_memory_and_minutes(root: Path) -> None:
    assert len(rules(root)) > 10
    for name, text in rules(root).items():
        for said in (r"\n    threads: ", r"\n        mem_mb=(grown\(|PLAN\.[\w.]+_mb,)", r"\n        runtime="):
            assert re.search(said, text), (name, said)


def test_the_rules_of_models_say_their_gpus_and_the_timed_ones_ask_for_a_node(root: Path) -> None:
    assert {name for name, text in rules(root).items() if "\n        gpu=" in text} == ON_GPUS
    assert {name for name, text in rules(root).items() if "slurm_extra=ALONE" in text} == ALONE


@pytest.mark.parametrize("profile", ["default", "slurm"])
def test_no_cluster_is_named(root: Path, profile: str) -> None:
    settings = yaml.safe_load((root / "profiles" / profile / "config.yaml").read_text(encoding="utf-8"))
    asked = {"slurm_partition", "slurm_account", "constraint"}
    assert not asked & set(settings.get("default-resources", {}))
    assert not [name for name, text in rules(root).items() if re.search(rf"\b({'|'.join(asked)})\b", text)]


@workflow_folder.needs_snakemake
def test_what_a_profile_fills_in_reaches_the_jobs(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra 'cluster'")
    folder = workflow_folder.copy_workflow(root, tmp_path)
    profile = folder / "profiles" / "slurm" / "config.yaml"
    text = profile.read_text(encoding="utf-8")
    filled = text.replace("# slurm_partition: main ", "slurm_partition: long ").replace(
        "# slurm_account", "slurm_account"
    )
    assert filled.count("\n  slurm_") == 2
    profile.write_text(filled, encoding="utf-8")
    done = workflow_folder.snakemake(folder, "-n", "--profile", "profiles/slurm", "--configfile", "configs/smoke.yaml")
    assert done.returncode == 0, done.stderr
    planned = re.findall(r"^ +resources: .*$", done.stdout + done.stderr, re.MULTILINE)
    assert planned
    assert all("slurm_partition=long" in line and "slurm_account=project" in line for line in planned)
