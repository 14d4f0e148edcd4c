"""What pipelining saves: PipeRAG against RETRO, no retrieval, ideal overlap and its prediction.

    python benchmarks/pipeline.py DATABASE [--index LABEL] --cores 0 --retrieval-cores 1 [--nprobe 64]

The server of the index and the decoder have cores of their own. All variants continue the same 64
tokens to 1,024 greedily, in a random order within each round, after one untimed run of each. With
--onnx FOLDER (`ragauge piperag export`) ONNX Runtime generates; without retrieval our decoder in
torch and transformers' in eager torch are timed beside it, and all must give the same tokens.
"""

from pathlib import Path

from _common import parse_options
from ragauge.pipelines.service.cores import pin
from ragauge.pipelines.service.process import running


def main() -> None:
    args = parse_options(
        __doc__,
        "database",
        index=("ivf", "label of its index"),
        model=("smollm2-135m-instruct", "a name of the catalog, a source or a folder"),
        dtype=("float32", "float32 or bfloat16"),
        mode=("joint", "joint or cross_attention: how neighbours are read"),
        onnx=(Path, "folder of `ragauge piperag export` for ONNX Runtime: joint, float32"),
        cores=(str, "of the decoder"),
        retrieval_cores=(str, "of the server"),
        threads=(int, "of the decoder; default: torch's own choice"),
        nprobe=(64, "lists that are searched"),
        interval=(64, "tokens between retrievals"),
        tokens=(1024, "of a text"),
        trials=(5, "of each variant"),
    )
    options = ["--cores", args.retrieval_cores] if args.retrieval_cores else []
    with running(args.database / "indexes" / args.index, options=options) as server:
        if args.cores:
            pin(args.cores)
        # torch's threads take the cores of the time of its import
        from _pipeline_runs import compare

        compare(args, server.address)


if __name__ == "__main__":
    main()
