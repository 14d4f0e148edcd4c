"""Compute cycles, FLOPs and cache bytes of a method on a model, without weights."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model whose shape is known, or a local checkpoint")
    parser.add_argument("--method", required=True)
    parser.add_argument("--top-k", type=options.count, metavar="K", help="the same as --set top_k=K")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the method")
    parser.add_argument("--tokens", default="nq_open", help="token counts: nq_open, musique or a JSON or YAML file")
    parser.add_argument("--new-tokens", type=options.count, default=1, metavar="N", help="tokens generated (1)")
    parser.add_argument("--accounting", default="critical_path", help="critical_path, total or published")
    parser.add_argument(
        "--dtype", choices=options.DTYPES, default="bfloat16", help="of cached keys and values (bfloat16)"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge import costing

    params = options.settings(args.set, "--set")
    if args.top_k is not None:
        params["top_k"] = args.top_k
    options.check_name("method", args.method)
    from ragauge import methods

    method = methods.make(args.method, where=f"--method {args.method}", **params)
    result = costing.project(args.method, method, args.model, args.tokens, args.new_tokens, args.accounting, args.dtype)
    options.show(result, args.json)
