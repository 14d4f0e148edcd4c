"""A tiny experiment whose pipelines ask a retrieval server that is a job of its own, and one that
starts its own.
"""

import json

import tiny_database
import tiny_models
import workflow_folder
from json_lines import read_lines
from ragauge.testing import write_checkpoint, write_questions

NAME = "served"
EXPERIMENT = """\
run: served
models: {{tiny: {{source: "path:{folder}/model", dtype: float32}}}}
datasets: {{nq_open: {{data: few.jsonl}}}}
methods: {{naive: {{}}}}
databases:
  words:
    corpus: corpus.jsonl
    tokenizer: "path:{folder}/model"
    encoder: "path:{folder}/encoder"
    engine: torch
    evaluation: documents
    evaluation_share: 0.2
    indexes: {{ivf: {{nlist: 4, pq_bytes: 4, nprobe: 2, iterations: 2}}}}
pipelines: {pipelines}
items: [superposition_table_1]
"""
SCORED = {"limit": 2, "tokens": 130}
RETRO = {**SCORED, "schedule": "retro"}
JOB = {"server": "job"}
PIPELINES = {
    "alone": RETRO,
    "beside": {**RETRO, **JOB},
    "ahead": {**SCORED, "schedule": "piperag", "interval": 32, **JOB},
}
CLOCKS = ("trials_s", "trace")


def write(root, folder):
    """The workflow with a tiny model, an encoder and a corpus."""
    made = workflow_folder.copy_workflow(root, folder)
    write_checkpoint(made / "model")
    write_questions(made / "few.jsonl", count=1)
    tiny_models.encoder(made / "encoder")
    tiny_database.write_corpus(made / "corpus.jsonl")
    return made


def configure(folder, pipelines=PIPELINES):
    """Write an experiment of these pipelines and return the options that name it."""
    path = folder / f"{NAME}.yaml"
    path.write_text(EXPERIMENT.format(folder=folder, pipelines=json.dumps(pipelines)))
    return "--configfile", path.name


def secured(folder, host):
    """The pipelines, where whoever asks the server's job needs a certificate and a token."""
    import trustme

    authority = trustme.CA()
    pair = authority.issue_cert(host)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    pair.private_key_pem.write_to_path(folder / "key.pem")
    pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    (folder / "token").write_text("a-token-that-all-of-them-know")
    access = {
        "server_cert": "cert.pem",
        "server_key": "key.pem",
        "tls_ca": "ca.pem",
        "token_file": "token",
    }
    return {
        label: {**pipeline, **(access if "server" in pipeline else {})}
        for label, pipeline in PIPELINES.items()
    }


def targets(*labels):
    """The files of pipelines' records, as Snakemake is asked for them."""
    return [f"results/{NAME}/pipelines/{label}.jsonl" for label in labels]


def records(folder, label):
    """A pipeline's records without what the clock said."""
    lines = read_lines(folder / targets(label)[0])
    return [{k: v for k, v in line.items() if k not in CLOCKS} for line in lines]
