"""CFIC's items: their numbers equal what is computed by hand here, and every cell without one says
why.
"""

import json
import math

import pytest

from item_tables import check_cells, line, shown, table
from json_lines import write_lines
from ragauge import registry
from ragauge.errors import UserError
from ragauge.report.figures.writing import markdown
from synthetic_cfic import TOKENS, write, write_documents, write_judgements, write_latency
from synthetic_run import MODEL

ITEMS = [name for name in registry.names("item") if name.startswith("cfic_")]
RIGHT = [True, True, False, True]
CONFIG = {
    "run": "t",
    "models": {MODEL: {}},
    "datasets": {"wiki_long": {}, "longbench_qasper": {}},
    "methods": {"cfic": {}, "cfic_no_skip": {"method": "cfic", "skip": False}, "full_article": {}},
}


@pytest.fixture
def small(tmp_path):
    """CFIC, its ablation and its baselines on four questions."""
    write(tmp_path, "cfic", "cfic", RIGHT)
    write(tmp_path, "no_skip", "cfic", [True, False, False, False], skip=False)
    write(tmp_path, "bm25", "chunks", [True, False, False, None], ranker="bm25")
    write(tmp_path, "free", "free_extraction", [True, False, False, False])
    write(tmp_path, "full_article", "full_article", [False, False, False, True])
    write(tmp_path, "closed_book", "closed_book", [False] * 4)
    return tmp_path


def test_table_1_counts_questions_words_and_tokens_of_those_asked(tmp_path):
    write(tmp_path, "cfic", "cfic", [True, False], dataset="longbench_qasper")
    # a variant that failed on the first question counts no tokens of it
    write(tmp_path, "free", "free_extraction", [None, True], dataset="longbench_qasper")
    write_documents(tmp_path, "longbench_qasper", 5)
    found = table("cfic_table_1", tmp_path)
    check_cells(
        found,
        """
{quantity: samples},
  {measured: 2, published: 200, ratio: 0.01, note: "a subset: 2 of 200 questions"}
{quantity: average_words}, {measured: 20, n: 2, published: 3619}
{quantity: average_tokens}, {measured: 24.5}
""",
        dataset="longbench_qasper",
        model=MODEL,
    )
    assert line(found, quantity="average_words", dataset="sft")["published"] == 12248
    write(tmp_path, "cfic", "cfic", RIGHT)  # of wiki_long, whose documents are not at hand
    words = line(table("cfic_table_1", tmp_path), quantity="average_words", dataset="wiki_long")
    assert math.isnan(words["measured"])
    assert "wiki_long.jsonl" in words["note"]


def test_lengths_are_of_documents_before_a_prompt_cuts_them_and_of_what_a_finder_reads(
    tmp_path,
):
    path = write(tmp_path, "cfic", "cfic", [True])
    record = json.loads(path.read_text())
    # by the finder, by the prompt
    record |= {"truncated": 3, "tokens": record["tokens"] | {"truncated": 9}}
    path.write_text(json.dumps(record) + "\n")
    for item, quantity, tokens in (
        ("1", "average_tokens", TOKENS + 9),
        ("6", "input_tokens", TOKENS + 9 - 3),
    ):
        found = line(
            table(f"cfic_table_{item}", tmp_path),
            model=MODEL,
            dataset="wiki_long",
            quantity=quantity,
        )
        assert found["measured"] == tokens


def test_table_1_says_how_near_the_training_data_are_to_the_papers_and_of_what_corpora(
    tmp_path,
):
    write(tmp_path, "cfic", "cfic", RIGHT)
    folder = tmp_path / "training/sft/data"
    folder.mkdir(parents=True)
    drawn = [("pg19/0#0", 2, 9), ("wiki/4#0", 1, 3)]  # key, pairs, words
    lines = [
        json.dumps({"key": key, "spans": [{}] * pairs, "text": "word " * words})
        for key, pairs, words in drawn
    ]
    (folder / "train.jsonl").write_text("\n".join(lines))
    config = CONFIG | {
        "models": {MODEL: {}, "tuned": {"training": "sft"}},
        "training": {"sft": {"model": MODEL}},
    }
    found = line(table("cfic_table_1", tmp_path, config), quantity="average_words", dataset="sft")
    assert (found["measured"], found["n"], found["published"]) == (7, 3, 12248)
    assert found["ratio"] == pytest.approx(7 / 12248, abs=1e-4)
    assert found["note"].endswith(
        "smaller set than the paper's; pg19 2 pairs of 9 words; wiki 1 pairs of 3 words"
    )


STAGES = {
    "cfic": {"query": 0.1, "prefix": 0.2, "skip": 0.3, "prompt": 5.0},
    "free": {"query": 0.1, "decode": 2.9, "prompt": 5.0},
}


def test_cells_of_methods_and_of_times_by_hand(small):
    """Times are 1, 1.1 and 1.2 times those of STAGES."""
    write_latency(small, STAGES)
    check_cells(
        table("cfic_table_3", small),
        """
{method: cfic, quantity: f1}, {measured: 0.75, variant: cfic}
{method: bm25, quantity: f1}, {measured: 0.25}
{method: free_extraction, quantity: f1_cfic_gain}, {measured: 0.5, n: 4}
{method: cfic, quantity: gold_section_recall}, {measured: 0.75}
{method: cfic, quantity: evidence_tokens}, {measured: 11.5}
""",
        model=MODEL,
        dataset="wiki_long",
    )
    six = table("cfic_table_6", small)
    check_cells(
        six[six["dataset"].isin(["wiki_long", "longbench_musique"])],
        """
{system: cfic, quantity: decoding_latency_ms, dataset: wiki_long}, {measured: 660, low: 630}
{system: cfic_prefix_stage, quantity: decoding_latency_ms, dataset: wiki_long}, {measured: 220}
{system: without_decoding_strategies, quantity: decoding_latency_ms, dataset: wiki_long},
  {measured: 3300}
{quantity: measured_speedup_cpu, model: smollm2-135m-instruct, dataset: wiki_long}, {measured: 5}
{system: cfic, quantity: prefix_steps, dataset: wiki_long}, {measured: 3}
{system: cfic, quantity: output_tokens, dataset: wiki_long}, {measured: 11.5}
{system: cfic, quantity: input_tokens, dataset: wiki_long}, {measured: 25.5}
{system: cfic, quantity: decoding_latency_ms, dataset: longbench_musique}, {published: 564}
""",
    )
    assert six["ratio"].isna().all()


def test_a_failed_question_finds_no_gold_section_where_one_is_known(tmp_path):
    for dataset in ("wiki_long", "longbench_qasper"):
        write(tmp_path, "cfic", "cfic", [True, None], dataset=dataset)
    for item in ("cfic_table_3", "cfic_table_4", "cfic_figure_3"):
        found = table(item, tmp_path)
        recall = found[found["quantity"] == "gold_section_recall"]
        assert set(zip(recall["dataset"], recall["measured"], recall["n"], strict=True)) == {
            ("wiki_long", 0.5, 2)
        }


def test_table_3_shows_published_f1_as_shares_under_the_generators_names(small):
    found = table("cfic_table_3", small)
    check_cells(
        found,
        """
{method: cfic}, {published: 0.31, finder: cfic_7b, note: published for another model}
{method: free_extraction, finder: longalpaca_7b}, {published: 0.212}
""",
        dataset="longbench_qasper",
        model="Vicuna-v1.5-7B-16k",
        quantity="f1",
    )
    assert found[found["model"] == MODEL]["published"].isna().all()


def test_rows_of_the_same_words_are_drawn_under_the_names_of_their_variants(tmp_path):
    for volume in (251, 350):
        write(tmp_path, f"bm25_{volume}", "chunks", [True], ranker="bm25", volume=volume)
    texts = shown("cfic_table_3", table("cfic_table_3", tmp_path)).split("\n")
    assert {text for text in texts if text.startswith("BM25, windows")} == {
        "BM25, windows (bm25_251)",
        "BM25, windows (bm25_350)",
    }


def test_published_numbers_stand_beside_the_papers_model_whatever_the_labels_are(
    tmp_path,
):
    methods = {"w": {"method": "chunks", "encoder": "bge-large-en-v1.5"}, "free_extraction": {}}
    labels = {
        "models": {"vicuna-7b-16k": {}},
        "datasets": {"qasper_16k": {"dataset": "longbench_qasper"}},
    }
    config = {"run": "t", **labels, "methods": methods}
    common = {"dataset": "qasper_16k", "model": "vicuna-7b-16k"}
    label = common | {"registered": "longbench_qasper"}
    write(tmp_path, "w", "chunks", [True, False], encoder="bge-large-en-v1.5", **label)
    write(tmp_path, "free_extraction", "free_extraction", [False, False], **label)
    found = table("cfic_table_3", tmp_path, config)
    check_cells(
        found,
        """
{quantity: f1, method: bge, chunking: sliding_window}, {measured: 0.5, published: 0.273}
{quantity: f1, method: free_extraction}, {published: 0.235}
""",
        **common,
    )
    rest = found[
        (found["model"] == "Vicuna-v1.5-7B-16k") & (found["dataset"] == "longbench_qasper")
    ]
    assert "bge" not in set(rest[rest["chunking"] == "sliding_window"]["method"])


def test_table_4_compares_each_ablation_with_cfic_at_its_own_k_and_d(small):
    write(small, "other_d", "cfic", [False] * 4, skip=False, d=32)
    found = table("cfic_table_4", small)
    check_cells(
        found[found["model"].isin([MODEL, "Llama2-7B-chat-4k"])],
        """
{setting: without_skip, quantity: f1_loss, model: smollm2-135m-instruct},
  {measured: 0.5, variant: no_skip}
{setting: without_skip, quantity: gold_section_loss, model: smollm2-135m-instruct},
  {measured: 0.5, n: 4}
{setting: without_sft, quantity: f1, model: smollm2-135m-instruct}, {measured: 0.75, variant: cfic}
{setting: without_both, quantity: f1, model: smollm2-135m-instruct},
  {note: "not run: not in this experiment; it is method cfic with prefix: false, skip: false"}
{setting: without_sft_free, quantity: f1, model: smollm2-135m-instruct},
  {measured: 0.25, variant: free}
{setting: without_sft_free, quantity: f1, model: Llama2-7B-chat-4k, dataset: longbench_musique},
  {published: 0.103}
""",
    )
    assert (
        0 < line(found, quantity="gold_section_loss", setting="without_skip", model=MODEL)["p"] <= 1
    )


@pytest.mark.parametrize("finds_only", [False, True])
def test_table_4_takes_a_fine_tuned_models_base_for_the_row_without_it(tmp_path, finds_only):
    trained = {"training": "cfic"}
    made = {
        "finder": {**trained, "methods": []},
        "tuned": {"source": MODEL, "finder": "finder", "methods": ["cfic"]},
    }
    config = CONFIG | {
        "models": {MODEL: {}} | (made if finds_only else {"tuned": trained}),
        "training": {"cfic": {"model": MODEL, "corpora": ["wikipedia-sample"], "writer": MODEL}},
    }
    write(tmp_path, "cfic", "cfic", [True, False])
    write(tmp_path, "cfic", "cfic", [True, True], model="tuned")
    found = table("cfic_table_4", tmp_path, config)
    check_cells(
        found,
        """
{setting: cfic, quantity: f1}, {measured: 1.0}
{setting: without_sft, quantity: f1}, {measured: 0.5}
{setting: without_sft, quantity: f1_loss}, {measured: 0.5}
""",
        model="tuned",
    )
    assert set(found[found["model"] == "tuned"]["setting"]) == {"cfic", "without_sft"}


@pytest.mark.parametrize(
    ("base", "finder"),
    [
        ("llama-2-7b-chat", "cfic_7b"),
        ("hf:Yukang/LongAlpaca-7B", "cfic_7b"),
        ("llama-2-7b", "tuned"),
    ],
)
def test_table_3s_cfic_is_tuned_from_either_base_of_the_paper(tmp_path, base, finder):
    config = CONFIG | {
        "models": {
            "tuned": {"training": "sft", "methods": []},
            "pair": {"source": MODEL, "finder": "tuned"},
        },
        "training": {"sft": {"model": base}},
    }
    write(tmp_path, "cfic", "cfic", [True], model="pair")
    assert (
        line(table("cfic_table_3", tmp_path, config), model="pair", method="cfic", quantity="f1")[
            "finder"
        ]
        == finder
    )


def test_table_6_shows_the_published_k_where_others_were_timed_too_and_nothing_was_answered(
    tmp_path,
):
    found = {"query": 0.1, "prefix": 0.2, "skip": 0.3, "prompt": 0.1}
    write_latency(
        tmp_path, {"a_k4": found, "cfic": found, "free_extraction": {"query": 0.1, "decode": 3.0}}
    )
    config = CONFIG | {
        "methods": {"a_k4": {"method": "cfic", "top_k": 4}, "cfic": {}, "free_extraction": {}}
    }
    keys = {
        "model": MODEL,
        "dataset": "wiki_long",
        "system": "cfic",
        "quantity": "decoding_latency_ms",
    }
    assert line(table("cfic_table_6", tmp_path, config), **keys)["variant"] == "cfic"


def test_table_7_counts_pieces_that_stand_in_the_document(small):
    found = table("cfic_table_7", small)
    # 0.025 ** (1 / 4), and one whole piece and three of two
    check_cells(
        found,
        """
{system: cfic, variant: cfic}, {measured: 1.0, low: 0.3976354, high: 1.0, n: 4}
{system: free_extraction, variant: free}, {measured: 0.625}
{system: "bm25, sliding_window"}, {n: 3, note: 1 of 4 questions without evidence are not counted}
{system: cfic, model: "the paper, judged by ChatGPT"}, {published: 0.96}
""",
        quantity="faithfulness",
    )
    assert not {"full_article", "closed_book"} & set(found["system"])


def test_table_7_names_the_judge_or_says_that_there_is_none(small):
    write_judgements(small, "cfic", ["supported", "supported", "not_supported", None])
    with next((small / "judgements").rglob("cfic.jsonl")).open("a") as file:
        file.write('\n{"key": "q1", "la')  # torn by a kill
    found = table("cfic_table_7", small)
    check_cells(
        found,
        """
{variant: cfic},
  {measured: 0.66666667, n: 3, note: judged by invented-judge; 1 questions without a judgement}
{variant: free}, {measured: .nan}
""",
        quantity="supported",
    )
    next((small / "judgements").rglob("cfic.jsonl")).write_text("[1]\n")
    with pytest.raises(UserError, match=r"cfic\.jsonl: a line is not a judgement"):
        table("cfic_table_7", small)


def test_table_7_shows_what_people_judged_and_the_judges_faithfulness(small):
    label = {"key": "q0", "judge": "invented-judge"}
    lines = [
        label | {"label": "supported"},
        label | {"label": "unfaithful", "aspect": "faithfulness"},
    ]
    path = small / "judgements/wiki_long" / MODEL / "cfic.jsonl"
    path.parent.mkdir(parents=True)
    write_lines(path, lines)
    people = small / "people.csv"
    judged = ["q0,ann,supported,yes", "q0,bob,partially_supported,no", "q1,ann,not_supported,yes"]
    # the last of a question that was not asked
    judged += ["q1,bob,not_supported,yes", "q9,bob,supported,yes"]
    head = "dataset,model,variant,key,person,label,faithful"
    people.write_text("\n".join([head, *(f"wiki_long,{MODEL},cfic,{line}" for line in judged)]))
    found = table("cfic_table_7", small, CONFIG | {"human_judgements": str(people)})
    keys = {"system": "cfic", "variant": "cfic", "model": MODEL}
    expected = {
        "supported": 0.25,
        "partially_supported": 0.25,
        "not_supported": 0.5,
        "faithfulness": 0.75,
    }
    for quantity, value in expected.items():
        human = line(found, quantity=f"human_{quantity}", **keys)
        assert (human["measured"], human["n"]) == (value, 2)
        assert (
            human["note"]
            == "judged by 2 people, with one label for 1 of 2 questions that several judged"
        )
    check_cells(
        found,
        """
{quantity: judged_faithfulness}, {measured: 0.0, note: judged by invented-judge}
{quantity: supported}, {n: 1}
""",
        **keys,
    )
    assert not found["quantity"][found["variant"] == "free"].str.startswith("human_").any()


def test_table_8_and_figure_3_take_one_parameter_each(small):
    write(small, "k1", "cfic", [True, False, False, False], top_k=1)
    write(small, "d32", "cfic", [True, True, True, True], d=32)
    write_latency(small, STAGES | {"k1": {"query": 0.1, "prefix": 0.1, "skip": 0.1, "prompt": 5.0}})
    eight = table("cfic_table_8", small)
    mine = eight[(eight["model"] == MODEL) & (eight["quantity"] == "f1")]
    assert dict(zip(mine["k"], mine["measured"], strict=True)) == {1: 0.25, 3: 0.75}
    check_cells(
        eight,
        """
{quantity: decoding_latency_ms}, {measured: 330}
{quantity: latency_without_strategies_ms}, {measured: 3300}
""",
        model=MODEL,
        k=1,
    )
    batches = [{"variant": "k1", "evidence_s": s, "disturbed": s == 9} for s in (0.2, 0.3, 0.4, 9)]
    write_latency(small, STAGES, evidence_batches={"questions": 8, "rows": batches})
    together = line(table("cfic_table_8", small), model=MODEL, k=1, quantity="decoding_latency_ms")
    assert (together["measured"], together["n"]) == (pytest.approx(300), 3)
    assert "8 questions side by side" in together["note"]
    for row, why in (("k1", "no undisturbed trial with"), ("other", "not timed with")):
        disturbed = {"variant": row, "evidence_s": 9, "disturbed": True}
        write_latency(small, STAGES, evidence_batches={"questions": 8, "rows": [disturbed]})
        unknown = line(
            table("cfic_table_8", small), model=MODEL, k=1, quantity="decoding_latency_ms"
        )
        assert f"{why} 8 questions side by side" in unknown["note"]
    three = table("cfic_figure_3", small)
    mine = three[(three["model"] == MODEL) & (three["quantity"] == "f1")]
    assert dict(zip(mine["d"], mine["measured"], strict=True)) == {32: 1.0, 256: 0.75}
    check_cells(
        three,
        '{quantity: best_d}, {measured: 32, note: "the best of 32, 256 on these questions"}',
        model=MODEL,
    )


def test_table_8_gives_a_pair_the_times_of_its_finder(small):
    config = CONFIG | {
        "models": {MODEL: {}, "pair": {"source": MODEL, "finder": MODEL}},
        "methods": {"cfic": {}, "free": {"method": "free_extraction"}},
    }
    write(small, "cfic", "cfic", RIGHT, model="pair")
    write_latency(small, STAGES)
    eight = table("cfic_table_8", small, config)
    for quantity in ("decoding_latency_ms", "latency_without_strategies_ms"):
        mine, finders = (
            line(eight, model=model, quantity=quantity, k=3) for model in ("pair", MODEL)
        )
        assert mine["measured"] == finders["measured"] > 0
        assert f"of its finder, {MODEL}" in mine["note"]


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_shows_what_was_measured(item, small):
    write(small, "k1", "cfic", [True, False, False, False], top_k=1)
    write(small, "d32", "cfic", [True, True, True, True], d=32)
    write_latency(small, STAGES)
    found = table(item, small)
    mine = found[(found["model"] == MODEL) & (found["status"] == "measured")]
    assert len(mine)
    assert mine["measured"].notna().all()
    assert "wiki_long" in markdown(found, "About.", "footer")
    assert shown(item, found)
