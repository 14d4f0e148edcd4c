"""The checked experiment and its plan, which the rules name. A wrong configuration ends here, in one line."""

import os
import sys
from pathlib import Path

from ragauge import registry
from ragauge.errors import UserError
from ragauge.io.files import file_sha256
from ragauge.config import run_progress, sources
from ragauge.config.code import code_of
from ragauge.config.launch.command_line import experiment
from ragauge.config.launch.failed_jobs import failed_jobs
from ragauge.config.launch.module_use import begin_with, check_module
from ragauge.config.launch.processes import (
    FEW_JOBS,
    check_committed,
    lock_folder,
    start_fork_server,
    use_own_commands,
)
from ragauge.config.launch.settings import write_clients, write_settings
from ragauge.config.launch.slurm import end_left_jobs
from ragauge.config.plan.part import ALONE, ASSET, filled, grown
from ragauge.config.plan.plan import Plan
from ragauge.measure.protocols.estimate import announce
from snakemake.exceptions import WorkflowError


def checked():
    """The experiment; a mistake in it is one line, without a traceback."""
    try:
        check_module(workflow.modifier.path_modifier)
        return experiment(config, workflow.configfiles, workflow.config_settings.config)
    except UserError as error:
        print(f"ragauge: error: {error}", file=sys.stderr, flush=True)
        os._exit(2)  # an exception would reach the user as a traceback through this file


# The cores are those of the run or, on a cluster, where the run has none, of the node that a job is on: it asks for the
# whole node, and Snakemake counts the cores there.
PLAN = Plan(checked(), cores=workflow.resource_settings.cores or 1)
PATHS = PLAN.paths
OUTER_ONSTART = workflow._onstart  # of a workflow that uses this one as a module
SERVED = workflow.modifier.modify_rulename(
    "served_pipeline"
)  # another workflow may rename the rules
CREDENTIALS = (
    "resources/servers/{}"  # made where a configuration names them (configs/papers/servers.yaml)
)
ENVIRONMENT = f"../../envs/{'gpu' if PLAN.on_gpu else 'cpu'}.yaml"
TRAINING_ENVIRONMENT = "../../envs/training.yaml"


wildcard_constraints:
    asset="[^/]+",
    database="[^/]+",
    dataset="[^/]+",
    evaluation="[^/]+",
    index="[^/]+",
    minutes=r"[\d.]+",
    mode="[^/]+",
    model="[^/]+",
    pipeline="[^/]+",
    shard=r"\d{5}",
    staleness="[^/]+",
    training="[^/]+",
    variant="[^/]+",


def begin():
    """Lock the folder, end what a killed run left, write the settings, and report progress from here on."""
    global FOLDER_LOCK
    # of this workflow's rules: one that uses it as a module has its own, and other modules
    needed_jobs = [
        job
        for job in workflow.dag.needrun_jobs()
        if job.rule.module_globals["__name__"] == __name__
    ]
    use_own_commands()
    try:
        check_committed(PLAN.config.run)
    except UserError as error:  # nothing is begun yet
        print(f"ragauge: error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    try:
        FOLDER_LOCK = lock_folder()
        end_left_jobs()
        served = [job.wildcards for job in needed_jobs if job.rule.name == SERVED]
        if served:
            limits = workflow.resource_settings
            PLAN.servers.check(
                served,
                limits.cores if workflow.local_exec else limits.nodes,
                cluster=not workflow.local_exec,
            )
        write_clients(PLAN.servers.clients(served))
        write_settings(PLAN.config, Path(PATHS.settings), workflow.configfiles)
        sources.check_fetched(PLAN)
        made = {path for job in needed_jobs for path in job.output}
        sources.check_start(PLAN, made, asks=workflow.local_exec)
        if workflow.local_exec:
            if made.issuperset(
                [*PLAN.answers.files(), *PLAN.pipelines.files(), *PLAN.items.all_files()]
            ):
                announce(PLAN.config, len(needed_jobs), PLAN.cores)
    except UserError as error:
        raise WorkflowError(str(error))
    if workflow.local_exec and len(needed_jobs) > FEW_JOBS:
        start_fork_server()
    run_progress.start(
        [run_progress.job_of(workflow.dag, job, PLAN.config.limit) for job in needed_jobs]
    )


def rendered(item):
    """The files of an item; the report shows the figure and the table."""
    files = PLAN.items.files(item)
    shown = dict(caption="../report/item.rst", category=PLAN.items.paper(item), subcategory=item)
    return files | {
        name: report(files[name], labels={"file": name}, **shown) for name in ("table", "figure")
    }
