"""Synthetic text, and with it data sets and corpora in the form in which their hubs have them."""

import gzip
import json
import random

LETTERS = "bcdfglmnprstv"
VOWELS = "aeiou"
LONGBENCH = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "musique")
PARAGRAPH = 90  # words, but for its last sentence
ARTICLE = 5200  # words of a LongBench article: more than what Llama 2 is given of it


def _words():
    draw = random.Random(0)
    found = dict.fromkeys(("the", "of", "and", "which", "what", "question", "answer"))
    while len(found) < 900:
        found[
            "".join(
                draw.choice(LETTERS) + draw.choice(VOWELS) for _ in range(draw.choice((1, 2, 2, 3)))
            )
        ] = None
    return list(found)


WORDS = _words()


def sentence(draw):
    """Eight to fourteen words, a capital and a full stop."""
    return " ".join(draw.choices(WORDS, k=draw.randint(8, 14))).capitalize() + "."


def prose(draw, words):
    """Paragraphs of sentences, at least `words` words in all."""
    paragraphs = []
    while sum(len(p.split()) for p in paragraphs) < words:
        sentences = [sentence(draw)]
        while sum(len(s.split()) for s in sentences) < min(PARAGRAPH, words):
            sentences.append(sentence(draw))
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def write_all(folder):
    """The data sets that configs/papers/paper.yaml names, and the corpora of its databases and its
    training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "nq_open.jsonl.gz", _nq_open(3))
    _lines(folder / "musique.jsonl", _musique(3))
    for task in LONGBENCH:
        name = "musique_long" if task == "musique" else task
        _lines(folder / f"{name}.jsonl", _longbench(task, 2))
    for number, corpus in enumerate(("wikipedia", "c4-realnewslike", "c4-en")):
        _lines(folder / f"{corpus}.jsonl", _documents(corpus, 400, 800, seed=number))
    people = (
        f"longbench_qasper,cfic-7b,cfic,qasper0,{person},supported,yes\n"
        for person in ("ann", "bob")
    )
    (folder / "people.csv").write_text(
        "".join(["dataset,model,variant,key,person,label,faithful\n", *people])
    )
    _lines(folder / "articles.jsonl", _documents("articles", 8, 5600, seed=9))


def _nq_open(count):
    draw = random.Random("nq_open")
    for _ in range(count):
        answer = draw.choice(WORDS).capitalize()
        contexts = [
            {
                "id": str(number),
                "title": sentence(draw)[:20],
                "text": prose(draw, 16),
                "hasanswer": number == 0,
            }
            | {"isgold": number == 0}
            for number in range(20)
        ]
        contexts[0]["text"] += f" It is {answer}."
        yield {"question": sentence(draw)[:-1].lower(), "answers": [answer], "ctxs": contexts}


def _musique(count):
    draw = random.Random("musique")
    for number in range(count):
        answer = draw.choice(WORDS).capitalize()
        paragraphs = [
            {
                "idx": i,
                "title": sentence(draw)[:20],
                "paragraph_text": prose(draw, 16),
                "is_supporting": i < 2,
            }
            for i in range(20)
        ]
        paragraphs[1]["paragraph_text"] += f" It is {answer}."
        yield {
            "id": f"2hop__{number}",
            "paragraphs": paragraphs,
            "question": sentence(draw)[:-1] + "?",
            "question_decomposition": [],
            "answer": answer,
            "answer_aliases": [],
            "answerable": True,
        }


def _longbench(task, count):
    draw = random.Random(task)
    for number in range(count):
        answer = draw.choice(WORDS).capitalize()
        context = prose(draw, ARTICLE if number == 0 else 900)
        yield {
            "input": sentence(draw)[:-1] + "?",
            "context": f"{context} It is {answer}.",
            "answers": [answer],
            "length": len(context.split()),
            "dataset": task,
            "language": "en",
            "all_classes": None,
            "_id": f"{task}{number}",
        }


def _documents(corpus, count, words, seed):
    draw = random.Random(seed)
    for number in range(count):
        address = f"https://example.org/{corpus}/{number}"
        text = prose(draw, words)
        if corpus in ("wikipedia", "articles"):
            yield {"id": str(number), "url": address, "title": sentence(draw)[:20], "text": text}
        else:
            yield {"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": address}


def _lines(path, records):
    with (
        gzip.open(path, "wt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open("w", encoding="utf-8") as file
    ):
        file.writelines(json.dumps(record) + "\n" for record in records)
