"""Writers of files, on inputs of milliseconds: what stood there before, the work, and what a reader finds.

Payloads that take seconds to make (weights, graphs, measurements) are stand-ins; the code that writes is the program's.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import tiny_database as tiny
from injected.children import Say, Work
from ragauge import skeletons
from ragauge.assets import archive, pins, url
from ragauge.assets.store import Store
from ragauge.engines import Row, random_lm, store, tuning
from ragauge.engines.store import DocumentStore
from ragauge.evidence.chat import Chat, RecordedChat, Replies, read_replies
from ragauge.experiment import launch, loading, schema
from ragauge.generation.retrofit.trained import TrainedWeights, read_trained
from ragauge.io import files, folders, progress, records
from ragauge.io.pieces import Pieces
from ragauge.io.records import EvidenceRecord, Record, Writer
from ragauge.prompts import unit_steps
from ragauge.rendering import writing
from ragauge.retrieval import chunking, embed, index
from ragauge.retrieval.corpus import Corpus
from ragauge.study import folder as study
from ragauge.training import finetuning
from ragauge.training.checkpoints import Checkpoints
from ragauge.training.loop import Progress
from ragauge.training.retrofit import fit
from ragauge.verbs import export, init, judge
from tiny_models import SHAPES

Found = dict[str, Any]  # unit -> what a reader takes it for; a unit that is not there is missing
KEYS = ["q0", "q1", "q2"]


@dataclass(frozen=True)
class Tested:
    """A writer under test."""

    name: str
    write: Work  # says the key of a unit once it is on the disk, if there are several
    found: Callable[[Path], Found]  # with every check that a reader can ask for; raises UserError if it refuses
    before: Callable[[Path], Any] = lambda folder: None
    absent: bool = False  # what was there before may be gone until the work is done again
    optional: bool = False  # what cannot be written costs time later, and no error now
    hashed: bool = True  # a reader can tell changed bytes
    checked: bool = True  # a reader can tell that bytes are missing
    keeps: Callable[[Path], bool] = lambda folder: True  # what must hold whatever happens
    stays: str = "$^"  # names that a killed process may leave until the folder is full


# --- records ---


def answered(key: str, text: str = "x é") -> Record:
    fields = {"status": "ok", "question": "who", "answers": ["me"], "gold": [0], "documents": 2, "prompt_sha256": "0"}
    return Record.model_validate({"key": key, "text": text + key, **fields})


def _ask(out: Path, say: Say, text: str = "x", keys: list[str] = KEYS, **options: Any) -> None:
    """A whole run, as `ragauge run` writes it."""
    with Writer(out, {"text": text}, keys, **options) as writer:
        for key in keys:
            if key not in writer.done:
                writer.begin(key)
                writer.append(answered(key, text))
                say(key)
        writer.finish({"host": "here"})


def _records(folder: Path) -> Found:
    out = folder / "x.jsonl"
    return {"x.jsonl": [record.model_dump() for record in records.read(out)]} if out.exists() else {}


def _silent(_: str) -> None: ...


def _cut_off(folder: Path) -> None:
    """Two of three questions are answered, and the third line is torn."""
    with Writer(folder / "x.jsonl", {"text": "x"}, KEYS) as writer:
        for key in KEYS[:2]:
            writer.append(answered(key, "x"))
    with writer.partial.open("ab") as file:
        file.write(b'{"key": "q2", "te')


def _parts(folder: Path) -> list[Path]:
    return [folder / f"{part}-of-3.jsonl" for part in range(3)]


def _asked_in_parts(folder: Path) -> None:
    for key, part in zip(KEYS, _parts(folder), strict=True):
        _ask(part, _silent, keys=[key])


def _old_records_are_somewhere(folder: Path) -> bool:
    places = [folder / "x.jsonl", *(folder / records.FORMER).glob("*.jsonl")]
    return any(b"old" in place.read_bytes() for place in places if place.is_file())


RECORDS = [
    Tested("records", lambda folder, say: _ask(folder / "x.jsonl", say), _records),
    Tested("records of a run that was cut off", lambda f, say: _ask(f / "x.jsonl", say), _records, _cut_off),
    Tested(
        "records of other settings, which are moved aside",
        lambda folder, say: _ask(folder / "x.jsonl", say, "new", overwrite=True),
        _records,
        lambda folder: _ask(folder / "x.jsonl", _silent, "old"),
        absent=True,
        keeps=_old_records_are_somewhere,
    ),
    Tested(
        "records gathered from parts",
        lambda folder, say: records.gather(_parts(folder), folder / "x.jsonl"),
        _records,
        _asked_in_parts,
    ),
]


# --- files ---


def _bytes_of(*names: str) -> Callable[[Path], Found]:
    return lambda folder: {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


class _Judge(Chat):
    """Says after each question that the one before is kept."""

    name = "stand-in"

    def __init__(self, say: Say) -> None:
        self._say, self._last = say, ""

    def replies(self, requests: Any, max_tokens: int, cue: str = "", instruction: str = "") -> Replies:
        self.end()
        self._last = next(key for key in KEYS if f"of {key}" in requests[0])
        return ["The evidence supports the answer: supported"]

    def end(self) -> None:
        if self._last:
            self._say(self._last)


def _judge(folder: Path, say: Say) -> None:
    asked = [
        answered(key).model_copy(
            update={"evidence": [EvidenceRecord(document=0, start=0, stop=5, text=f"of {key}", verbatim=True)]}
        )
        for key in KEYS
    ]
    one = _Judge(say)
    judge._judge(one, asked, folder / "judged.jsonl")
    one.end()


def _judgements(folder: Path) -> Found:
    return {key: asdict(value) for key, value in judge._known(folder / "judged.jsonl").items()}


def _kernels(folder: Path, say: Say) -> None:
    os.environ["RAGAUGE_HOME"] = str(folder / "home")
    tuning.measure = lambda dtype: {}
    tuning.load_or_measure_tables([torch.float32])


def _kernel_tables(folder: Path) -> Found:
    os.environ["RAGAUGE_HOME"] = str(folder / "home")
    return tuning._read(tuning.table_path())


STUDY_FILES = {text: {"config.yaml": f"{text}: 1\n".encode(), "questions.jsonl": text.encode()} for text in ("a", "b")}


def _study(folder: Path) -> Found:
    made = folder / "study"
    if made.is_dir():
        study.check(made, ["config.yaml", "questions.jsonl"], "the command")
    return _bytes_of("study/config.yaml", "study/questions.jsonl")(folder)


class _Weights(TrainedWeights):
    form = "stand-in"

    def __init__(self, value: float) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.full((4, 8), value))

    def groups(self) -> list[dict[str, Any]]:
        return []

    def sizes(self) -> dict[str, str]:
        return {}


def _trained(folder: Path) -> Found:
    path = folder / "trained.safetensors"
    return {"trained": read_trained(path, "stand-in", None)[1]["table"].tolist()} if path.exists() else {}


FILES = [
    Tested(
        "one file, replaced",
        lambda folder, say: files.write_file(folder / "below/file", b"new" * 5000),
        _bytes_of("below/file"),
        lambda folder: files.write_file(folder / "below/file", b"old"),
        hashed=False,
        checked=False,
    ),
    Tested("judgements", _judge, _judgements, hashed=False),
    Tested("table of kernels", _kernels, _kernel_tables, hashed=False),
    Tested(
        "files of a study",
        lambda folder, say: study.write(folder / "study", STUDY_FILES["b"]),
        _study,
        lambda folder: study.write(folder / "study", STUDY_FILES["a"]),
        hashed=False,
    ),
    Tested(
        "weights trained beside a decoder",
        lambda folder, say: _Weights(2.0).save(folder / "trained.safetensors", model="m"),
        _trained,
        lambda folder: _Weights(1.0).save(folder / "trained.safetensors", model="m"),
        hashed=False,
    ),
]


# --- folders ---


def _read_folder(target: Path) -> Any:
    """What a folder with a manifest holds; one that a quick look takes is whole to the last byte."""
    folders.read(target, None)
    manifest = folders.read(target, None, verify=True)
    of_itself = (folders.MARK, folders.MANIFEST)
    paths = sorted(path for path in target.rglob("*") if path.is_file() and path.name not in of_itself)
    return {"manifest": manifest, **{path.name: folders.file_sha256(path) for path in paths}}


def _folder(name: str) -> Callable[[Path], Found]:
    return lambda folder: {name: _read_folder(folder / name)} if (folder / name / folders.MANIFEST).exists() else {}


def _build(folder: Path, text: str) -> None:
    def fill(unfinished: Path) -> Mapping[str, Any]:
        (unfinished / "below").mkdir()
        (unfinished / "below/file").write_text(text * 3000)
        (unfinished / "other").write_text(text)
        return {}

    folders.build(folder / "a", "thing", {"x": text}, fill)


def _pieces(folder: Path, say: Say) -> None:
    pieces = Pieces(folder / "a", {"x": 1})
    with folders.locked(folder / "a"):
        pieces.open()
        for number in range(3):
            if pieces.get(number) is None:
                pieces.keep(number, bytes([number]) * 99)
                say(str(number))


def _kept_pieces(folder: Path) -> Found:
    found = {str(number): Pieces(folder / "a", {"x": 1}).get(number) for number in range(3)}
    return {number: piece for number, piece in found.items() if piece is not None}


def _save_checkpoint(folder: Path, step: int) -> None:
    checkpoints = Checkpoints(folder / "checkpoints")
    tag = checkpoints.tag(step)
    checkpoints.claim(tag)
    for name in ("weights.pt", "rank0/optimizer.pt"):  # as a training library writes them
        path = checkpoints.folder / tag / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([step]) * 3000)
    checkpoints.keep(tag, {"fingerprint": "x", "step": step, "seconds": float(step), "curve": []})


def _train(folder: Path, say: Say) -> None:
    checkpoints = Checkpoints(folder / "checkpoints")
    with checkpoints.alone():
        for step in range(checkpoints.state().get("step", 0) + 1, 4):
            _save_checkpoint(folder, step)
            say(str(step))


def _checkpoint(folder: Path) -> Found:
    """Whichever counts is whole, and none that counted is lost."""
    checkpoints = Checkpoints(folder / "checkpoints")
    if not checkpoints.state():
        return {}
    checkpoints.verified()
    return {"counts": "a whole checkpoint"}


def _move_aside(folder: Path, say: Say) -> None:
    checkpoints = Checkpoints(folder / "checkpoints")
    with checkpoints.alone():
        if checkpoints.state():
            checkpoints.move_aside()


def _aside(folder: Path) -> Found:
    former = Checkpoints(folder / "checkpoints/former")
    return {"former": former.verified().name} if former.state() else {}


def _is_aside_or_there(folder: Path) -> bool:
    return len(list((folder / "checkpoints").rglob("step-1/weights.pt"))) == 1


class _Saved:
    """Stands for a model or a tokenizer that a library writes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load_state_dict(self, *_: Any, **__: Any) -> None: ...

    def save_pretrained(self, folder: Path) -> None:
        for number in range(2):
            (folder / f"{self.name}-{number}").write_text(self.name * 999)


def _material(model: str) -> Any:
    decoder = SimpleNamespace(decoder=_Saved(model))
    settings = SimpleNamespace(model=model)
    return SimpleNamespace(model=lambda: decoder, tokenizer=_Saved("tokenizer"), settings=settings)


def _asset(name: str) -> Callable[[Path], Found]:
    def found(folder: Path) -> Found:
        whole = Store(folder, progress=False, verify=True).whole(folder / name)
        paths = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        return {name: {path.name: path.read_bytes() for path in paths}} if whole else {}

    return found


def _export(folder: Path, text: str) -> None:
    """The verb's own code around a form whose graphs are stand-ins."""
    from ragauge.engines.onnx.runtime import write_origin
    from ragauge.generation import readers

    def graphs(checkpoint: Any, unfinished: Path) -> None:
        for name in ("encoder", "decoder"):
            (unfinished / f"{name}.onnx").write_text(text * 2000)
        write_origin(unfinished, {"model_sha256": text})

    form = SimpleNamespace(export=graphs)
    readers.reader_of = lambda name: form  # type: ignore[assignment]
    export._check = lambda *_: None  # type: ignore[assignment]
    export._checkpoint = lambda *_: None  # type: ignore[assignment, return-value]
    export.options.tell = lambda *_, **__: None  # type: ignore[assignment]
    export.run(SimpleNamespace(out=folder / "graphs", form="stand-in"))  # type: ignore[arg-type]


def _unpack(folder: Path, say: Say) -> None:
    packed = folder / "packed.zip"
    Store(folder, progress=False).build(
        folder / "asset", lambda unfinished: {"members": archive.unpack(packed, unfinished)}
    )


def _pack(folder: Path) -> None:
    with zipfile.ZipFile(folder / "packed.zip", "w") as file:
        for name in ("one", "below/two"):
            file.writestr(name, name * 1000)


FOLDERS = [
    Tested("a folder, made", lambda folder, say: _build(folder, "new"), _folder("a")),
    Tested("a folder, replaced", lambda f, say: _build(f, "new"), _folder("a"), lambda f: _build(f, "old")),
    Tested("pieces of a folder", _pieces, _kept_pieces),
    Tested(
        "checkpoints of a training",
        _train,
        _checkpoint,
        lambda folder: _save_checkpoint(folder, 1),
        stays="checkpoints/step-2(/.*)?",  # which the next save removes
    ),
    Tested(
        "checkpoints of other settings, which are moved aside",
        _move_aside,
        _aside,
        lambda folder: _save_checkpoint(folder, 1),
        keeps=_is_aside_or_there,
    ),
    Tested(
        "a trained model",
        lambda folder, say: finetuning._write_model(_material("new"), {}, folder / "model"),
        _asset("model"),
        lambda folder: finetuning._write_model(_material("old"), {}, folder / "model"),
    ),
    Tested(
        "an export to ONNX",
        lambda folder, say: _export(folder, "new"),
        _bytes_of("graphs/encoder.onnx", "graphs/decoder.onnx", "graphs/about.json"),
        lambda folder: _export(folder, "old"),
        hashed=False,
        checked=False,
    ),
    Tested("an asset, unpacked", _unpack, _asset("asset"), _pack),
]


# --- databases and indexes ---

SHARDS = 2


@functools.cache
def _recipe() -> Any:
    from injected.children import LIBRARY

    folder = Path(os.environ[LIBRARY])
    return tiny.recipe(tiny.write_corpus(folder / "corpus.jsonl", 40), tiny.write_tokenizer(folder / "tokenizer"))


def _embed(folder: Path, shard: int = 0, say: Say = _silent) -> None:
    """In blocks of few chunks; the encoder says that the block before is kept."""
    embed.BLOCK_CHUNKS = 48  # type: ignore[misc]

    class Encoder(tiny.CountEncoder):
        last = ""

        def encode(self, texts: Any) -> Any:
            if Encoder.last:
                say(Encoder.last)
            Encoder.last = texts[0]
            return super().encode(texts)

    class Choice(tiny.Choice):
        def load(self) -> Any:
            return Encoder()

    embed.build_embeddings(folder, shard, Choice())


def _cut_evaluation(folder: Path) -> None:
    chunking.build_evaluation_set(folder, "held", Corpus(_recipe().corpus.sources, limit=6), tiny.TAIL)


STAGES: list[tuple[str, str, Callable[[Path, Say], Any]]] = [
    ("a shard of a database", "shards/00000", lambda f, say: chunking.build_shard(f, _recipe(), 0)),
    ("", "shards/00001", lambda f, say: chunking.build_shard(f, _recipe(), 1)),
    ("an evaluation set", "evaluation/held", lambda f, say: _cut_evaluation(f)),
    ("marks of near-duplicates", "near_duplicates/00000", lambda f, say: chunking.mark(f, SHARDS, 0)),
    ("", "near_duplicates/00001", lambda f, say: chunking.mark(f, SHARDS, 1)),
    ("a database", "database", lambda f, say: chunking.gather(f, SHARDS)),
    ("embeddings of a shard", "embeddings/00000", lambda f, say: _embed(f, 0, say)),
    ("", "embeddings/00001", lambda f, say: _embed(f, 1)),
    ("a trained index", "indexes/ivf/trained", lambda f, say: index.train(f, "ivf", tiny.INDEX)),
    ("a shard of an index", "indexes/ivf/shards/00000", lambda f, say: index.add(f, "ivf", tiny.INDEX, 0)),
    ("", "indexes/ivf/shards/00001", lambda f, say: index.add(f, "ivf", tiny.INDEX, 1)),
    ("an index", "indexes/ivf/merged", lambda f, say: index.merge(f, "ivf", tiny.INDEX)),
]


def _stages_before(count: int) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        for _, _, make in STAGES[:count]:
            make(folder, _silent)

    return made


DATABASES = [
    Tested(name, make, _folder(target), _stages_before(number))
    for number, (name, target, make) in enumerate(STAGES)
    if name
]


# --- documents ---


@functools.cache
def _decoder() -> Any:
    return random_lm(SHAPES["llama"], threads=1)


def _read_documents(folder: Path | None) -> list[list[float]]:
    """What a decoder gives for two documents, with a store or without."""
    lm = _decoder()
    lm.documents = DocumentStore(folder / "kept", "this decoder", 10**9) if folder else None
    cache = lm.new_cache(64)
    got = []
    for ids in ([5, 6, 7], [8, 9, 10, 11]):
        row = Row(ids, unit_steps(0, len(ids)))
        got += lm.extend(cache, [row], stage="documents", offline=True, logp=True).logp
    return [values.tolist() for values in got]


def _answer(folder: Path, say: Say) -> None:
    if _read_documents(folder) != _plain():
        raise AssertionError("not what is computed without a store")


@functools.cache
def _plain() -> list[list[float]]:
    return _read_documents(None)


def _kept_documents(folder: Path) -> Found:
    entries = store.files_of(folder / "kept")
    return {e.name: "whole" for e in entries if e.suffix == ".kv" and not store.damage(e)}


DOCUMENTS = [
    Tested("kept documents", _answer, _kept_documents, optional=True, stays=r".*\.partial|kept/\.tmp\w{6}"),
]


# --- downloads ---

BODY = bytes(range(256)) * 600
URL = "https://host/model.bin"
SHA256 = hashlib.sha256(BODY).hexdigest()


class _Reply(io.BytesIO):
    """A server's reply to a request, which has the rest of the file if that is asked for."""

    def __init__(self, request: Any, *_: Any, **__: Any) -> None:
        start = int((request.get_header("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        super().__init__(BODY[start:])
        self.status = 206 if start else 200
        self.headers = {"ETag": '"one"', "Content-Length": str(len(BODY) - start)}
        self.headers |= {"Content-Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"} if start else {}


def _download(folder: Path, say: Say) -> None:
    url.CHUNK = 1 << 16
    url.urllib.request.urlopen = _Reply  # type: ignore[assignment]
    url.fetch(Store(folder, progress=False), URL, SHA256)


def _cut_download(folder: Path) -> None:
    """What a download left that was cut off."""
    target = Store(folder).folder("url", "model.bin", URL, SHA256, [])
    part = target.parent / f".{target.name}.part" / "model.bin"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[:70_000])
    part.with_name("model.bin.validator").write_text('"one"')


def _downloaded(folder: Path) -> Found:
    made = Store(folder, progress=False, verify=True)
    places = [place for place in (folder / "url").glob("model*") if made.whole(place)]
    return {place.name: (place / "model.bin").read_bytes() == BODY for place in places}


FETCHED = [
    Tested("a download", _download, _downloaded),
    Tested("a download that was cut off before", _download, _downloaded, _cut_download),
]


# --- trainings ---


def _fit(folder: Path) -> fit.RetroFit:
    """A training whose weights are its step."""
    made: Any = object.__new__(fit.RetroFit)
    made.folder, made.trained, made.about, made._measured_s = folder / "fit", _Weights(0.0), {"model": "m"}, 0.0
    made.optimizer = torch.optim.SGD(made.trained.parameters(), lr=0.1)
    made.lm, made.progress = SimpleNamespace(device="cpu"), Progress("x")
    made.resume()
    return made


def _fit_on(folder: Path, say: Say, steps: int = 3) -> None:
    made = _fit(folder)
    while made.progress.step < steps:
        made.progress.step += 1
        made.trained.table.data.fill_(float(made.progress.step))
        made.progress.curve.append({"step": made.progress.step})
        made.save()
        say(str(made.progress.step))
    made.save()


def _fitted(folder: Path) -> Found:
    """The state is one that a training saved, and so are the weights, which it writes first."""
    found: Found = {}
    made = _fit(folder)
    if made.progress.step:
        rows = made.trained.table.tolist()
        found["state"] = "whole" if rows == _Weights(float(made.progress.step)).table.tolist() else "of another step"
    if made.path.exists():
        found["weights"] = len(set(map(tuple, read_trained(made.path, "stand-in", None)[1]["table"].tolist())))
    return found


TRAINING = [
    Tested(
        "the state of a RETRO-fit", _fit_on, _fitted, lambda folder: _fit_on(folder, _silent, steps=1), hashed=False
    ),
]


# --- what is written for people ---


def _render(folder: Path, text: str) -> None:
    """An item whose table and figure are stand-ins."""
    writing.csv_text = writing.latex = writing.markdown = lambda *_: text * 999  # type: ignore[assignment]
    writing._figure_bytes = lambda *_: {kind: text.encode() * 999 for kind in writing.METADATA}
    writing.write("item", None, None, "", "", folder / "items")  # type: ignore[arg-type]


class _Chat(Chat):
    name, opens = "stand-in", True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def replies(self, requests: Any, max_tokens: int, cue: str = "", instruction: str = "") -> Replies:
        self.asked += requests
        return [f"reply to {request}" for request in requests]


def _ask_for_study(folder: Path, say: Say) -> None:
    chat = _Chat()
    recorded = RecordedChat(chat, folder / "replies.jsonl")
    for key in KEYS:
        recorded.replies([key], 9)
        if key in chat.asked:
            say(key)


def _new(folder: Path, say: Say) -> None:
    if not _begun(folder):
        skeletons.write("metric", "loud_words", folder / "new")


def _init(folder: Path, say: Say) -> None:
    if not _begun(folder):
        init.options.tell = lambda *_, **__: None  # type: ignore[assignment]
        init.run(SimpleNamespace(folder=folder / "new", example=True))  # type: ignore[arg-type]


def _begun(folder: Path) -> Found:
    """A folder of the user's, once it is whole."""
    new = folder / "new"
    if not new.is_dir() or not any(new.iterdir()) or (new / folders.UNFINISHED).exists():
        return {}
    return {"new": {str(path.relative_to(new)): path.read_bytes() for path in new.rglob("*") if path.is_file()}}


@functools.cache
def _config(tokens: int) -> schema.Config:
    models = {"smollm2-135m-instruct": {"dtype": "float32"}}
    given = {"run": "small", "models": models, "generation": {"max_new_tokens": tokens}, "items": []}
    return loading.parse(given, "small.yaml")


def _settle(folder: Path, tokens: int) -> None:
    pins.write(folder / "small.lock.json", pins.Lock(assets={"m": pins.Pin(revision=str(tokens))}))
    launch.write_settings(_config(tokens), folder / "results/config.yaml", [str(folder / "small.yaml")])


WRITTEN = [
    Tested(
        "a rendered item",
        lambda folder, say: _render(folder, "new"),
        _bytes_of(*(f"items/item.{kind}" for kind in ("csv", "md", "tex", "svg", "pdf", "png"))),
        lambda folder: _render(folder, "old"),
        hashed=False,
        checked=False,
    ),
    Tested(
        "replies for a study's questions",
        _ask_for_study,
        lambda folder: dict(read_replies(folder / "replies.jsonl")),
        hashed=False,
    ),
    Tested("a package of `ragauge new`", _new, _begun, hashed=False, checked=False),
    Tested("a folder of `ragauge init`", _init, _begun, hashed=False, checked=False),
    Tested(
        "settings of a run, and its lock",
        lambda folder, say: _settle(folder, 20),
        _bytes_of("results/config.yaml", "results/config.lock.json"),
        lambda folder: _settle(folder, 10),
        hashed=False,
        checked=False,
    ),
]

ALL = [*RECORDS, *FILES, *FOLDERS, *FETCHED, *TRAINING, *WRITTEN, *DATABASES, *DOCUMENTS]


def warm_up(folder: Path) -> None:
    """Import and compute what children would otherwise do each for itself."""
    progress.hide(True)
    _plain()
    _stages_before(len(STAGES))(folder)
