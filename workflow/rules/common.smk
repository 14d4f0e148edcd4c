"""The checked configuration and the helpers that the rules name. A wrong configuration ends here, in one line."""

import fcntl
import os
import sys
from pathlib import Path

import yaml

from ragauge import registry
from ragauge.config import check_methods, parse, read
from ragauge.digest import digest
from ragauge.errors import UserError
from snakemake.exceptions import WorkflowError


def checked(data):
    """The experiment, with its mistakes told in one line and no traceback."""
    try:
        for path in workflow.configfiles:
            read(
                Path(path)
            )  # for what the merged mapping no longer shows, such as a key that stands twice
        place = (
            os.path.relpath(workflow.configfiles[-1])
            if workflow.configfiles
            else "--config"
        )
        experiment = parse(data, place)
        check_methods_once(experiment, place)
    except UserError as error:
        print(f"ragauge: error: {error}", file=sys.stderr, flush=True)
        os._exit(
            2
        )  # an exception would reach the user as a traceback through this file
    return experiment


def check_methods_once(experiment, place):
    """Check the methods' parameters unless this very check has passed before: it takes torch over a second."""
    variants = [variant.model_dump_json() for variant in experiment.methods.values()]
    seal = "\n".join(
        [
            digest(*(f"ragauge.methods.{name}" for name in registry.names("method"))),
            *variants,
        ]
    )
    passed = Path(".snakemake", "ragauge-methods-passed")
    if not (passed.is_file() and passed.read_text() == seal):
        check_methods(experiment, place)
        passed.parent.mkdir(exist_ok=True)
        passed.write_text(seal)


EXPERIMENT = checked(config)
RESULTS = f"results/{EXPERIMENT.run}"
REPORTS = f"reports/{EXPERIMENT.run}"
LOGS = f"logs/{EXPERIMENT.run}"
SETTINGS = f"{RESULTS}/config.yaml"
ON_GPU = any(model.device == "cuda" for model in EXPERIMENT.models.values())
ENVIRONMENT = f"../../envs/{'gpu' if ON_GPU else 'cpu'}.yaml"


wildcard_constraints:
    asset="[^/]+",
    dataset="[^/]+",
    model="[^/]+",
    variant="[^/]+",


def hold_folder():
    """Keep other runs out for as long as this process lives.

    Snakemake's own lock outlives a killed run, which must simply go on; so profiles/default has it off.
    """
    global FOLDER_LOCK
    FOLDER_LOCK = open(".snakemake/ragauge.lock", "w")
    try:
        fcntl.flock(FOLDER_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WorkflowError(
            "another run of this workflow is at work in this folder; wait for it or stop it"
        )


def code_of(*modules):
    """The digest of the modules behind a rule's command: an edit makes anew what rests on it, and nothing else."""
    return digest(*(f"ragauge.{module}" for module in modules))


rule settings:
    """The experiment's effective configuration, command-line changes included."""
    output:
        SETTINGS,
    log:
        f"{LOGS}/settings.log",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    params:
        text=yaml.safe_dump(EXPERIMENT.model_dump(exclude_none=True), sort_keys=False),
    shell:
        "printf '%s' {params.text:q} > {output} 2> {log}"
