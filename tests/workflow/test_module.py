"""Another workflow uses this one as a module, as snakedeploy and the catalogue of Snakemake
workflows have it.
"""

import os
import shutil

import pytest
import yaml

from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import Planned, needs_snakemake, run

pytestmark = needs_snakemake

# What snakedeploy 0.16 writes; in place of the path it has the address and the tag of the
# repository.
DEPLOYED = """
configfile: "config/config.yaml"


module ragauge:
    snakefile:
        "{snakefile}"
    config:
        config


use rule * from ragauge
"""


EXPERIMENT = """\
ours: 1
rag:
  run: within
  models: {{tiny: {{source: "path:{folder}/model"}}}}
  datasets: {{nq_open: {{data: "{folder}/few.jsonl"}}}}
  methods: {{naive: {{}}}}
  generation: {{max_new_tokens: 4}}
  items: [superposition_table_1]
"""


@pytest.fixture
def deployed(root, tmp_path):
    """A folder as snakedeploy leaves it: a copy of `config`, and a Snakefile with the declaration."""
    shutil.copytree(root / "config", tmp_path / "config")
    (tmp_path / "workflow").mkdir()
    text = DEPLOYED.format(snakefile=root / "workflow/Snakefile")
    (tmp_path / "workflow/Snakefile").write_text(text)
    return tmp_path


def test_the_declaration_plans_what_the_clone_plans(deployed, plan, preloaded):
    counts = plan().counts
    assert counts["all"] == 1
    assert plan("--snakefile", "workflow/Snakefile").counts == counts
    assert Planned(run(deployed, "-n", commands=preloaded)).counts == counts


OWN_RULE = """
rule plot:
    input: examples="results/one/data/{dataset}.jsonl"
    output: records="plots/{dataset}-{variant}.txt"
    shell: "touch {output}"


rule everything:
    default_target: True
    input: rules.first_all.input, rules.second_all.input, "plots/nq_open-other.txt"
"""


@pytest.mark.slow
def test_two_experiments_and_other_rules_in_one_workflow(root, tmp_path, preloaded):
    """By relative paths, with labels that neither the other module nor the other rules know."""
    write_checkpoint(tmp_path / "model")
    write_questions(tmp_path / "few.jsonl", count=1)
    (tmp_path / "workflow").mkdir()
    snakefile = os.path.relpath(root / "workflow/Snakefile", tmp_path / "workflow")
    lines = ['configfile: "config.yaml"', "ruleorder: first_asset > second_asset"]
    methods = {"first": {"naive": {}}, "second": {"bm25_k1": {"method": "bm25", "top_k": 1}}}
    config = {}
    for (name, variants), run_name in zip(methods.items(), ("one", "two"), strict=True):
        config[name] = yaml.safe_load(EXPERIMENT.format(folder="."))["rag"]
        config[name] |= {"run": run_name, "methods": variants}
        module = f'module {name}:\n    snakefile: "{snakefile}"\n    config: config["{name}"]\n'
        lines.insert(-1, f"{module}\nuse rule * from {name} as {name}_*\n")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "workflow/Snakefile").write_text("\n\n".join(lines) + OWN_RULE)
    run(tmp_path, "--cores", "2", commands=preloaded)
    assert (tmp_path / "results/one/answers/nq_open/tiny/naive.jsonl").is_file()
    assert (tmp_path / "results/two/answers/nq_open/tiny/bm25_k1.jsonl").is_file()
    for run_name, variants in zip(("one", "two"), methods.values(), strict=True):
        settings = yaml.safe_load((tmp_path / f"results/{run_name}/config.yaml").read_text())
        assert settings["methods"].keys() == variants.keys()
    assert (tmp_path / "plots/nq_open-other.txt").is_file()
