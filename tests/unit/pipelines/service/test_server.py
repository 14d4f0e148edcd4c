"""The retrieval service in one process: the answers of its searcher, refusals, limits, deadlines
and shutdown.
"""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import service_parts as parts
from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service import credentials, proto, wire
from ragauge.pipelines.service import server as service
from ragauge.pipelines.service.client import Client, RetrievalError, method
from ragauge.pipelines.service.proto import ragauge_pb2 as pb
from tables import cases


@pytest.fixture(scope="module")
def server():
    with parts.server(parts.Toy()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with Client(server.address) as made:
        yield made


@pytest.fixture(scope="module")
def strict():
    """The searches of a server with narrow limits, without a client of ours before them."""
    with (
        parts.server(parts.Toy(), max_queries=4, max_message_bytes=1 << 18) as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        yield method(channel, "Search", pb.SearchReply)


def test_the_generated_modules_are_those_of_the_proto_file(tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")
    folder = Path(proto.__file__).parent
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out")]
    assert (
        protoc.main(
            ["protoc", f"--proto_path={folder.parents[3]}", *outputs, str(folder / "ragauge.proto")]
        )
        == 0
    )
    for name in ("ragauge_pb2.py", "ragauge_pb2.pyi"):
        [path] = tmp_path.rglob(name)
        assert path.read_text() == (folder / name).read_text(), "run `make proto`"


def test_tokens_become_text_by_the_tokenizer_of_the_server():
    with (
        parts.server(parts.Toy(), detokenize=parts.spelled) as server,
        Client(server.address) as client,
    ):
        assert client.detokenize([[72, 105], [33]]) == ["t72 t105", "t33"]
        with pytest.raises(
            RetrievalError, match=r"refused: sequences\[1\]\[0\]: 250; must be from 0 to 249"
        ):
            client.detokenize([[1], [250]])


# --- refusals ---

GOOD = {"k": 2, "text": "a"}


def tokens(*ids):
    return {"k": 2, "tokens": pb.Tokens(ids=ids)}


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], "queries: 0 queries; must be from 1 to 4"),
        ([GOOD] * 5, "queries: 5 queries; must be from 1 to 4"),
        ([{"k": 2}], "queries[0]: query: give tokens or text, one of the two"),
        ([tokens()], "queries[0]: query: the tokens are empty"),
        ([tokens(*[1] * 4097)], "queries[0].tokens: 4097 tokens; must be from 0 to 4096"),
        ([tokens(1, 250)], "queries[0].tokens[1]: 250; must be from 0 to 249"),
        (
            [GOOD | {"text": "a" * 32769}],
            "queries[0].text: 32769 characters; must be from 0 to 32768",
        ),
        (
            [GOOD | {"k": 256, "continuation": 16}] * 4,
            "queries: 17408 chunks (k times 1 + continuation, over all",
        ),
        *(
            ([GOOD | change], f"queries[0]{message}")
            for change, message in cases(r"""
{text: " \n"} -> : query: the text is empty
{k: 0} -> : query: k must be at least 1, not 0
{k: 4294967295} -> .k: 4294967295; must be from 1 to 256
{continuation: 17} -> .continuation: 17; must be from 0 to 16
{nprobe: 0} -> : query: nprobe must be at least 1, not 0
{nprobe: 17} -> .nprobe: 17; must be from 1 to 16
{budget_s: 0} -> : query: budget_s must be positive, not 0.0
{budget_s: .nan} -> : query: budget_s must be positive, not nan
{budget_s: .inf} -> .budget_s: inf; must be from 0 to 3600.0
{nprobe: 1, budget_s: 1} -> : query: give nprobe or budget_s, not both
""")
        ),
    ],
)
def test_a_field_out_of_bounds_is_named_with_its_value_and_range(strict, queries, message):
    request = pb.SearchRequest(queries=[pb.Query(**query) for query in queries])
    with pytest.raises(grpc.RpcError) as caught:
        strict(request, timeout=5)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(message)


def test_a_refusal_reaches_the_client_and_a_defect_is_logged(client, caplog):
    with pytest.raises(
        RetrievalError, match=r"refused: query: a mistake that only the searcher sees"
    ):
        client.search([Query(text="mistake")])
    with pytest.raises(
        RetrievalError, match=r"internal: it failed \(ZeroDivisionError\); see the server's log"
    ):
        client.search([Query(text=parts.FAIL)])
    assert "a defect" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": "localhost"}, "retrieval address 'localhost': must be host:port"),
        ({"address": "localhost:0"}, "must be host:port"),
        ({"address": "dns:///localhost:80"}, "must be host:port"),
        ({"deadline_s": 0}, "retrieval deadline: 0"),
        ({"deadline_s": float("nan")}, "retrieval deadline: nan"),
        ({"tls_ca": Path("none.pem")}, "none.pem: cannot be read"),
    ],
)
def test_a_clients_settings_are_checked(arguments, message):
    with pytest.raises(UserError) as caught:
        Client(**{"address": "127.0.0.1:1", **arguments})
    assert message in str(caught.value)


def test_a_call_without_the_token_is_not_let_in(tmp_path):
    for name, text in (
        ("right", "s3cret-" * 4 + "\n"),
        ("wrong", "secret-" * 4),
        ("short", "a"),
        ("two", "a b" * 9),
    ):
        (tmp_path / name).write_text(text)
    token = credentials.read_token(tmp_path / "right")
    with parts.server(parts.Toy(), token=token) as server:
        with Client(server.address, token_file=tmp_path / "right") as client:
            client.wait_until_ready(5)
            assert client.describe() == parts.ABOUT
            parts.assert_same(
                client.search([Query(text="a")]), parts.Toy().search([Query(text="a")])
            )
        for given in (None, tmp_path / "wrong"):
            with Client(server.address, token_file=given) as client:
                calls = (
                    lambda: client.wait_until_ready(5),
                    client.describe,
                    lambda: client.search([Query(text="a")]),
                )
                for call in calls:
                    with pytest.raises(
                        RetrievalError, match="not let in: the call does not carry"
                    ) as error:
                        call()
                    assert "cret-" not in str(error.value)
    for name in ("short", "two"):
        with pytest.raises(UserError, match="must hold a token of 16 to 4096"):
            credentials.read_token(tmp_path / name)


@pytest.mark.parametrize(
    "call", ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", ""]
)
@pytest.mark.parametrize("metadata", [None, [("authorization", "Bearer wrong")]])
def test_calls_without_the_token_whose_message_never_comes_shut_nobody_out(
    call, metadata, tmp_path, monkeypatch
):
    monkeypatch.setattr(service, "WAITING_CALLS", 2)
    (tmp_path / "token").write_text("s3cret-" * 4)
    token = credentials.read_token(tmp_path / "token")
    never = threading.Event()

    def no_message():
        never.wait()
        yield b""

    with (
        parts.server(parts.Toy(), token=token, max_concurrent=2) as server,
        grpc.insecure_channel(server.address) as channel,
        Client(server.address, token_file=tmp_path / "token", deadline_s=5) as client,
    ):
        open_call = channel.stream_unary(call or f"/{wire.SERVICE}/Search")
        try:
            for _ in range(40):  # beyond the limit of calls, were they under way
                begun = open_call.future(no_message(), metadata=metadata)
                begun.exception(5)
                assert begun.code() is grpc.StatusCode.UNAUTHENTICATED
            client.wait_until_ready(5)
            assert client.round_trip_s() < 5
            parts.assert_same(
                client.search([Query(text="a")]), parts.Toy().search([Query(text="a")])
            )
        finally:
            never.set()


@pytest.mark.parametrize(
    ("host", "files", "missing"),
    [
        ("0.0.0.0", "", "--tls-cert with --tls-key and --token-file"),
        ("::", "t", "--tls-cert with --tls-key, or"),
        ("10.0.0.1", "ck", "give --token-file"),
        ("10.0.0.1", "ckt", None),
        ("127.9.9.9", "", None),
        ("[::1]", "", None),
        ("localhost", "", None),
        ("localhost", "c", "--tls-cert and --tls-key: give both or neither"),
        ("example.org", "", "--tls-cert with --tls-key and --token-file"),
    ],
)
def test_other_machines_need_credentials(host, files, missing):
    paths = [Path(name) if name in files else None for name in "ckt"]
    if missing is None:
        credentials.ServerAccess(*paths).check(host)
    else:
        with pytest.raises(UserError, match=re.escape(missing)):
            credentials.ServerAccess(*paths).check(host)


# --- operation ---


def health(server):
    with grpc.insecure_channel(server.address) as channel:
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


def test_requests_beyond_the_limit_are_turned_away_and_those_within_it_answered():
    toy = parts.Held()
    outcomes = []
    with (
        parts.server(toy, max_concurrent=2) as server,
        Client(server.address, deadline_s=60) as client,
        ThreadPoolExecutor(6) as asking,
    ):
        for _ in range(6):
            asking.submit(lambda: outcomes.append(outcome(client.start([Query(text=parts.SLEEP)]))))
        parts.wait_for(lambda: len(outcomes) == 4)
        toy.release.set()
    assert outcomes == ["turned away"] * 4 + ["answered"] * 2


def outcome(search):
    try:
        search.result()
    except RetrievalError as error:
        return (
            "turned away"
            if "2 requests are under way, which is the limit" in str(error)
            else str(error)
        )
    return "answered"
