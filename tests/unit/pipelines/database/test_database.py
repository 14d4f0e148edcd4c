"""Chunk databases: chunks that never cross a document, shards that resume, held-out text, refusals."""

import random
import signal
import unicodedata

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tiny_database
from json_lines import read_lines, write_lines
from killed_processes import die_at, in_child
from ragauge.errors import UserError
from ragauge.pipelines.database import chunking
from ragauge.pipelines.database.chunking import HeldOutSplit
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.database.documents import CorpusDocument
from ragauge.pipelines.retrieval.settings import EvaluationSetSettings
from tiny_database import CHUNK


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tiny_database.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def corpus(tmp_path):
    return tiny_database.write_corpus(tmp_path / "c.jsonl", 12)


def write_texts(path, texts):
    return write_lines(path, ({"text": text} for text in texts))


def text_of(made, ids):
    return "".join(map(made.tokenizer.decode, made.tokens(ids)))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_document_is_its_chunks_and_no_chunk_crosses_it(tmp_path, corpus, tokenizer, shards):
    made = tiny_database.build_chunks(
        tmp_path / "db", tiny_database.recipe(corpus, tokenizer, shards, HeldOutSplit("none"))
    )
    expected = {record["title"]: record["text"] for record in read_lines(corpus)}
    ids = np.arange(len(made))
    owners = made.documents(ids)
    assert made.counts["documents"] == 12
    assert made.counts["chunks"] == len(made)
    assert {
        tiny_database.documents(made)[d]["title"]: text_of(made, ids[owners == d])
        for d in range(12)
    } == expected
    assert (
        made.counts["tokens"] == sum(map(len, made.tokens(ids))) == sum(map(len, expected.values()))
    )


def test_continuations_follow_the_document_and_end_with_it(tmp_path, corpus, tokenizer):
    made = tiny_database.build_chunks(tmp_path / "db", tiny_database.recipe(corpus, tokenizer, 3))
    ids = np.arange(len(made))
    following = made.continuations(ids)
    slow = [
        i + 1 if i + 1 < len(made) and made.documents(ids)[i + 1] == made.documents(ids)[i] else -1
        for i in ids
    ]
    assert following.tolist() == slow
    # only a document's last chunk is short
    assert {len(row) for row in made.tokens(ids[following >= 0])} == {CHUNK}
    assert made.tokens(np.array([-1])) == [[]]
    assert (
        made.continuations(np.array([-1])).tolist()
        == made.documents(np.array([-1])).tolist()
        == [-1]
    )
    with pytest.raises(UserError, match="no chunk"):
        made.tokens(np.array([len(made)]))


def test_the_tail_is_held_out(tmp_path, corpus, tokenizer):
    made = tiny_database.build_chunks(tmp_path / "db", tiny_database.recipe(corpus, tokenizer, 2))
    expected = {record["title"]: record["text"] for record in read_lines(corpus)}
    ids = np.arange(len(made))
    held_out = list(made.evaluation())
    assert len(held_out) == made.counts["evaluation"] == 12
    for evaluation in held_out:
        kept = text_of(made, ids[made.documents(ids) == evaluation.document])
        assert f"{kept} {evaluation.text}" == expected[evaluation.title]
        assert len(evaluation.text) / len(expected[evaluation.title]) == pytest.approx(
            0.2, abs=0.06
        )
        assert tiny_database.documents(made)[evaluation.document]["title"] == evaluation.title


@pytest.mark.parametrize(
    "text",
    [
        "一二三四五六七八九十" * 20,
        "東京は日本の首都である。" * 20,
        "ภาษาไทยไม่มีช่องว่าง" * 20,
        "စကားလုံးများ" * 20,
        "ភាសាខ្មែរ" * 20,
        "第一段文字\n\n" + "没有空格的文字，" * 30,
    ],
)
def test_the_tail_is_held_out_in_scripts_without_blanks(text):
    held_out = HeldOutSplit()(CorpusDocument("", "", text))[1]
    assert len(held_out) / len(text) == pytest.approx(0.2, abs=0.02)
    assert unicodedata.category(held_out[0])[0] in "LN"  # no mark is parted from its letter


@pytest.mark.parametrize("text", ["word " * 50 + "w" * 300, "낱말 " * 90, "été où là " * 30])
def test_no_word_is_cut_where_blanks_part_words(text):
    stored, held_out = HeldOutSplit()(CorpusDocument("", "", text))
    assert stored.split() + held_out.split() == text.split()


def test_whole_documents_are_held_out_by_their_text_alone():
    split = HeldOutSplit("documents", 0.3)
    documents = [CorpusDocument(f"x:{n}", "", f"text number {n}") for n in range(500)]
    held = [not split(document)[0] for document in documents]
    assert 0.2 < np.mean(held) < 0.4
    assert held == [
        not split(CorpusDocument("elsewhere", "t", document.text))[0] for document in documents
    ]
    assert all(bool(a) != bool(b) for a, b in map(split, documents))


def words(draw, count):
    return " ".join(f"w{draw.randrange(5000)}" for _ in range(count))


def characters(draw, count):
    return "".join(chr(draw.randrange(0x4E00, 0x9000)) for _ in range(count))


def unaccented_tokenizer(folder):
    """A tokenizer of words in lower case and without accents, as BERT's: its ids lose both."""
    made = Tokenizer(models.WordLevel({f"w{n}e": n for n in range(5000)} | {"?": 5000}, "?"))
    lower = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    made.normalizer = normalizers.Sequence(lower)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def marked(tmp_path, tokenizer, texts, held_out):
    corpus = write_texts(tmp_path / "corpus.jsonl", texts)
    seen = write_texts(tmp_path / "seen.jsonl", held_out)
    recipe = tiny_database.recipe(corpus, tokenizer, 2, HeldOutSplit("none"))
    for shard in range(2):
        chunking.build_shard(tmp_path / "db", recipe, shard)
    settings = EvaluationSetSettings(corpus=str(seen), part="all")
    chunking.build_evaluation_set(tmp_path / "db", "seen", settings)
    for shard in range(2):
        chunking.mark(tmp_path / "db", 2, shard, ["seen"])
    chunking.gather(tmp_path / "db", 2, ["seen"])
    database = Database(tmp_path / "db")
    places = [tiny_database.documents(database)[n]["place"] for n in database.near_duplicates]
    return sorted(int(place.rpartition(":")[2]) - 1 for place in places)


@pytest.mark.parametrize("write", [words, characters])
def test_documents_that_quote_evaluation_text_are_marked(tmp_path, tokenizer, write):
    """A short piece within a long document: the similarity of the two texts is next to nothing."""
    draw = random.Random(0)
    held_out = [write(draw, count) for count in (12, 30, 45, 80, 250)]
    quoting = [f"{write(draw, 300)} {text.upper()} {write(draw, 300)}" for text in held_out]
    parts = [" ".join(text.split()[:6]) if " " in text else text[:6] for text in held_out]
    others = [f"{write(draw, 300)} {part} {write(draw, 300)}" for part in parts]
    found = marked(tmp_path, tokenizer, quoting + others, held_out)
    assert found == list(range(len(quoting)))


def test_texts_are_compared_as_the_tokenizer_reads_them(tmp_path):
    draw = random.Random(1)
    accented = words(draw, 60).replace(" ", "é ") + "é"
    plain = f"{words(draw, 90)} {accented.replace('é', 'e').upper()} {words(draw, 90)}"
    tokenizer = unaccented_tokenizer(tmp_path / "tokenizer")
    assert marked(tmp_path, tokenizer, [plain, words(draw, 200)], [accented]) == [0]


def test_a_killed_build_goes_on_at_the_shard(tmp_path, corpus, tokenizer):
    recipe = tiny_database.recipe(corpus, tokenizer, 3)
    folder = tmp_path / "db"

    def work():
        chunking.build_shard(folder, recipe, 0)
        die_at(0, [(chunking, "_write_document")])
        chunking.build_shard(folder, recipe, 1)

    assert in_child(work) == -signal.SIGKILL
    with pytest.raises(UserError, match="no shard of a chunk database"):
        tiny_database.gather(folder, 3)
    assert [chunking.build_shard(folder, recipe, n) for n in range(3)] == [False, True, True]
    tiny_database.gather(folder, 3)
    undisturbed = tiny_database.build_chunks(tmp_path / "other", recipe)
    assert Database(folder).sha256 == undisturbed.sha256
    assert not list(folder.rglob("*.unfinished"))


def test_memory_does_not_grow_with_the_corpus(tmp_path, tokenizer, monkeypatch):
    held = []
    encode = chunking.encode
    monkeypatch.setattr(
        chunking, "encode", lambda by, texts: held.append(len(texts)) or encode(by, texts)
    )
    path = write_texts(tmp_path / "c.jsonl", ["a few words"] * 1000)
    chunking.build_shard(tmp_path / "db", tiny_database.recipe(path, tokenizer, 1), 0)
    assert max(held) == chunking.BATCH_DOCUMENTS < sum(held) == 1000


def test_near_duplicates_are_those_of_all_shards_evaluation_text(tmp_path, tokenizer):
    """A copy in one shard of what another holds out, marked in whatever order by jobs of their own."""
    texts = [[f"w{number}-{place}" for place in range(200)] for number in range(20)]
    copies = [[*words[:100], "other", *words[101:]] for words in texts]
    path = write_texts(tmp_path / "c.jsonl", [" ".join(words) for words in [*texts, *copies]])
    split = HeldOutSplit("documents", 0.5)
    whole = tiny_database.build_chunks(
        tmp_path / "1", tiny_database.recipe(path, tokenizer, 1, split)
    )
    recipe = tiny_database.recipe(path, tokenizer, 3, split)
    folder = tmp_path / "3"
    assert all(chunking.build_shard(folder, recipe, n) for n in range(3))
    assert all(chunking.mark(folder, 3, n) for n in (2, 0, 1))
    assert not chunking.mark(folder, 3, 1)
    chunking.gather(folder, 3)
    made = Database(folder)
    places = [
        sorted(tiny_database.documents(each)[n]["place"] for n in each.near_duplicates)
        for each in (made, whole)
    ]
    assert places[0] == places[1] != []
    assert made.counts == whole.counts


def build(tmp_path, corpus, tokenizer):
    recipe = tiny_database.recipe(corpus, tokenizer)
    tiny_database.build_chunks(tmp_path / "db", recipe)
    return tmp_path / "db", recipe


def test_shards_of_another_corpus_or_tokenizer_are_refused(tmp_path, corpus, tokenizer):
    folder, recipe = build(tmp_path, corpus, tokenizer)
    tiny_database.write_corpus(corpus, 12, seed=3)
    chunking.build_shard(folder, recipe, 1)
    with pytest.raises(UserError, match="not the shard that the database was gathered from"):
        Database(folder)
    other = tiny_database.byte_tokenizer()
    other.add_tokens(["another"])
    other.save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text((tokenizer / "config.json").read_text())
    chunking.build_shard(folder, tiny_database.recipe(corpus, tmp_path / "other"), 1)
    with pytest.raises(UserError, match="of another tokenizer"):
        chunking.gather(folder, 2)
    chunking.build_shard(folder, recipe, 1)
    with pytest.raises(UserError, match="near-duplicates of evaluation text that has changed"):
        chunking.gather(folder, 2)
    tiny_database.gather(folder, 2)
    with pytest.raises(UserError, match="its chunks were cut by the tokenizer"):
        Database(folder).check_tokenizer(other, "other")
