"""`ragauge query`: what it prints of an answer, of a partial one, and of a mistake."""

import re

import pytest

import service_parts as parts
from json_lines import last_value
from ragauge.cli._main import main
from ragauge.pipelines.retrieval.retriever import Query
from tables import cases


@pytest.fixture(scope="module")
def addresses():
    """Of a server of everything, and of two with half of it each."""
    toys = [parts.Toy(), parts.Toy(part=0, of=2), parts.Toy(part=1, of=2)]
    servers = [parts.server(toy, detokenize=parts.spelled) for toy in toys]
    for server in servers:
        server.start()
    yield [server.address for server in servers]
    for server in servers:
        server.stop()


def output_of(capsys, *arguments):
    assert main(["query", *arguments]) == 0
    return capsys.readouterr().out


def test_json_holds_the_answer_of_the_searcher(addresses, capsys):
    output = output_of(
        capsys, "--server", addresses[0], "--text", "a", "--k", "3", "--nprobe", "9", "--json"
    )
    result = last_value(output)
    [expected] = parts.Toy().search([Query(text="a", k=3, nprobe=9)])
    assert [one["id"] for one in result["neighbours"]] == expected.ids
    assert [one["distance"] for one in result["neighbours"]] == [
        row.distance for row in expected.rows
    ]
    first = result["neighbours"][0]
    assert first["text"] == parts.spelled([first["tokens"]])[0]
    assert first["continuation"] == parts.spelled([first["continuation_tokens"]])[0]
    assert (result["nprobe"], result["missing_servers"]) == (9, [])
    assert result["seconds"]["search"] == 0.001


def test_a_partial_answer_says_what_is_missing(addresses, capsys):
    servers = ["--server", "127.0.0.1:9", "--server", addresses[1]]
    output = output_of(capsys, *servers, "--text", "a", "--partial")
    assert re.search(r'^missing_servers +\["127.0.0.1:9"\]$', output, re.MULTILINE)
    assert main(["query", *servers, "--text", "a"]) == 2
    assert capsys.readouterr().err.startswith(
        "ragauge: error: retrieval server 127.0.0.1:9, search of 1 query: "
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    cases("""
[--text, ' '] -> query: the text is empty
[--text, a, --k, '0'] -> query: k must be at least 1, not 0
[--text, a, --nprobe, '17'] -> refused: queries[0].nprobe: 17; must be from 1 to 16
[--text, a, --deadline, '0'] -> retrieval deadline: 0.0; must be seconds above 0
[--text, a, --tls-ca, none.pem] -> none.pem: cannot be read
"""),
)
def test_a_mistake_is_one_line(addresses, arguments, message, capsys):
    assert main(["query", "--server", addresses[0], *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
