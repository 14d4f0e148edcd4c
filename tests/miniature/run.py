"""The very configs/papers/paper.yaml at its smallest, as `make miniature` runs it.

    python -m miniature.run [--part superposition|cfic|piperag|servers] [arguments of Snakemake]

Writes small copies of the papers' models and data, runs the workflow on them with
configs/ci/miniature.yaml laid over configs/papers/paper.yaml, and checks the results. Everything it
reads and writes is in resources/miniature, so it shares no file with other runs of the checkout. No
network is needed. `--part` makes the items of one paper and what they read; `--part servers` makes
pipelines of two databases with configs/papers/servers.yaml, each on a port of its own, over TLS.
Arguments are handed to Snakemake; where they name targets, what came of it is not checked.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from endpoints import says, served, streams
from miniature import check, hub, texts
from miniature.kinds import planned

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "resources" / "miniature"
SERVERS = [
    ROOT / f"configs/{name}.yaml"
    for name in ("papers/paper", "ci/miniature", "papers/servers", "ci/servers")
]
CONFIGURATIONS = [ROOT / "configs/papers/paper.yaml", ROOT / "configs/ci/miniature.yaml"]
PARTS = ("superposition", "cfic", "piperag")  # what the names of a paper's items begin with
# of two databases, so that two servers run
SERVED = ("scored_wikipedia_retro_p64", "own_c4_t5_retro_p64")
# Numbers that mean nothing need no machine of their own: what is timed runs beside other jobs, as a
# fork, on a thread. The greedy scheduler: the other one solves a linear program for every job that
# ends.
BESIDE = (
    "--set-threads",
    "pipeline=1",
    "index_training=1",
    "index_recall=1",
    "--scheduler",
    "greedy",
)


def environment(folder):
    """What points the program at the folder's models in place of the network's."""
    return {
        "RAGAUGE_HOME": str(folder / "home"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "RAGAUGE_KERNELS": "default",
    }


def write(folder):
    """Models, encoders, data sets and corpora, once."""
    if not (folder / "whole").exists():
        hub.write_all(folder / "home", folder / "hub")
        write_local(folder / "data")
        (folder / "whole").touch()


def write_local(folder):
    """What the overlay names by its path: data sets, corpora and a checkpoint."""
    texts.write_all(folder)
    hub.write_small_retro(folder / "retro")


def reply(request):
    """What the endpoint says: to the judge's questions a label, to a span a question about a word
    of its own.
    """
    if "supported" in request:
        return says("fully supported")
    if request.endswith("faithful or unfaithful"):
        return says("faithful")
    words = re.findall(r"[a-z]+", request.rpartition("\n\n")[0])  # of the span, which stands first
    longest = max(words, key=len, default="answer")  # the check before a run asks without a span
    return says(f"Which of all of them is it that {longest} stands for?")


def write_text(_):
    """What served models write, as evidence or as an answer."""
    return streams(
        "It is ",
        "so.",
        prompt_tokens=30,
        completion_tokens=2,
        prompt_tokens_details={"cached_tokens": 12},
    )


def main(arguments):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--part", choices=(*PARTS, "servers"))
    chosen, rest = parser.parse_known_args(arguments)
    began = time.monotonic()
    write(FOLDER)
    os.chdir(FOLDER)
    if chosen.part == "servers":
        return serve_two(rest)
    config = planned(*CONFIGURATIONS)
    if chosen.part:
        config = of_part(config, chosen.part)
    code = workflow([*([chosen.part] if chosen.part else ()), *(rest or ["--cores", "all"])])
    print(f"{(time.monotonic() - began) / 60:.1f} minutes", file=sys.stderr)
    return code or (int(failed(config, chosen.part)) if _is_whole(rest) else 0)


def serve_two(options):
    """Run the pipelines of two servers, which are jobs, in a run of its own; the exit code."""
    targets = [f"results/miniature-servers/pipelines/{label}.jsonl" for label in SERVED]
    for folder in ("pipelines", "served"):
        shutil.rmtree(FOLDER / "results/miniature-servers" / folder, ignore_errors=True)
    code = workflow([*targets, *(options or ["--cores", "3"])], SERVERS, "run=miniature-servers")
    if code:
        return code
    logs = (FOLDER / "logs/miniature-servers/servers").glob("*/ivf.log")
    serving = re.compile(r"^serving \S+:(\d+)$", re.MULTILINE)
    ports = {port for log in logs for port in serving.findall(log.read_text())}
    records = [json.loads(line) for path in targets for line in Path(path).read_text().splitlines()]
    print(f"{len(ports)} ports, {len(records)} records", file=sys.stderr)
    whole = len(ports) == len(SERVED) and {record["status"] for record in records} == {"ok"}
    return int(not whole)


def of_part(config, part):
    """The experiment with the items of one paper alone."""
    return config.model_copy(
        update={"items": [name for name in config.item_names() if name.startswith(part)]}
    )


def workflow(options, files=CONFIGURATIONS, *changes):
    """Run Snakemake in the miniature's folder, beside endpoints that write, judge and answer; its
    exit code.
    """
    with served(reply) as endpoint, served(write_text) as models:
        urls = {
            "RAGAUGE_WRITER_URL": endpoint.url,
            "RAGAUGE_WRITER_MODEL": "m",
            "RAGAUGE_JUDGE_URL": endpoint.url,
            "RAGAUGE_JUDGE_MODEL": "m",
            "OPENAI_BASE_URL": models.url,
        }
        place = ["--snakefile", str(ROOT / "workflow" / "Snakefile"), "--directory", str(FOLDER)]
        configuration = ["--configfile", *files, *(["--config", *changes] if changes else [])]
        command = [sys.executable, "-m", "snakemake", *options, *BESIDE, *place, *configuration]
        return subprocess.run(
            command, cwd=ROOT, env=os.environ | environment(FOLDER) | urls, check=False
        ).returncode


def _is_whole(arguments):
    """Whether the arguments leave the run all of its targets: none but a number of cores."""
    return not arguments or (len(arguments) == 2 and arguments[0] == "--cores")


def failed(config, part=None):
    """Whether the run has faults, which are printed."""
    found = check.faults(config, Path(), part is not None)
    print("\n".join(found or [f"every kind of {part or 'all'} was run"]), file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
