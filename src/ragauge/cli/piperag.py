"""PipeRAG: generation with retrieval, the training and the export of decoders that read neighbours, stale queries."""

import argparse
from importlib import import_module
from types import ModuleType

from ragauge.cli import _options as options

STEPS = {
    "run": "generate or score evaluation text with retrieval under one schedule; resumes an interrupted run",
    "staleness": "compare the neighbours of stale and of fresh queries over held-out text (PipeRAG, Table 2)",
    "retrofit": "train a frozen decoder to use retrieved neighbours (RETRO-fit); resumes an interrupted run",
    "export": "export a decoder that reads neighbours, or RETRO, to ONNX for `ragauge piperag run --onnx`",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, step in options.add_steps(parser, STEPS):
        _module(name).add_arguments(step)


def run(args: argparse.Namespace) -> None:
    _module(args.step).run(args)


def _module(step: str) -> ModuleType:
    return import_module(f"ragauge.cli._piperag_{step}")
