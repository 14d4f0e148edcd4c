"""Downloads against a server on loopback that behaves, and in each way that servers do not."""

import pytest

from archives import zipped
from asset_home import in_home
from ragauge.assets import resolver, url
from ragauge.errors import UserError
from served_site import BODY, SHA256, Site, running
from tables import rows


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(url, "PAUSE_S", 0.001)
    with running(Site()) as server:
        yield server


@pytest.mark.parametrize(
    ("behaviour", "ranges"),
    rows("""
{cut: [300000, 200000]}, [null, bytes=300000-, bytes=500000-]
# which it sends from the start
{cut: [300000], ranges: false}, [null, bytes=300000-]
# without a validator nothing is resumed
{cut: [300000], etag: ""}, [null, null]
{failures: [503, 429, 500]}, [null, null, null, null]
{length: false}, [null]
"""),
)
def test_a_difficult_server_gives_the_file(behaviour, ranges, site, tmp_path):
    vars(site).update(behaviour)
    assert in_home(tmp_path, resolver.fetch, site.url()).read_bytes() == BODY
    assert site.asked == ranges


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_resumes_what_an_earlier_one_left_unless_the_file_changed(
    site, tmp_path, changed, monkeypatch
):
    site.cut = [300_000]
    path = tmp_path / "file.bin"
    with monkeypatch.context() as patch:
        patch.setattr(url, "ATTEMPTS", 1)  # as if the process ended after the first
        with pytest.raises(UserError, match=r"1 attempts: .*300000 .*1024000"):
            url.download(site.url(), path)
    if changed:
        site.body = BODY[::-1]
        site.etag = '"two"'
    url.download(site.url(), path)
    assert path.read_bytes() == site.body
    assert site.asked[-1] == "bytes=300000-"


def test_a_range_beyond_the_end_starts_again(site, tmp_path):
    url.download(site.url(), tmp_path / "file.bin")  # complete, as if the process died here
    url.download(site.url(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_a_server_that_always_cuts_gives_a_clear_error(site, tmp_path):
    """One that has no such file is asked once."""
    site.ranges = False
    site.cut = [1000] * 20
    with pytest.raises(UserError, match=r"file\.bin: .*5 attempts: .*1000 bytes"):
        in_home(tmp_path, resolver.fetch, site.url())
    assert len(site.asked) == url.ATTEMPTS
    site.failures = [404]
    with pytest.raises(UserError, match=r"other\.bin: HTTP 404 Not Found"):
        in_home(tmp_path, resolver.fetch, site.url("other.bin"))
    assert len(site.asked) == url.ATTEMPTS + 1


def test_a_wrong_hash_names_file_expected_and_found_and_removes_the_file(site, tmp_path):
    expected = "0" * 64
    with pytest.raises(UserError, match=rf"file\.bin: .* expected {expected}, found {SHA256};"):
        in_home(tmp_path, resolver.fetch, site.url(), sha256=expected)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size]


def test_a_file_larger_than_the_disk_is_refused_first(site, tmp_path, monkeypatch):
    usage = url.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(url.shutil, "disk_usage", lambda _: usage._replace(free=5000))
    with pytest.raises(UserError, match=r"1,024,000 bytes to come, 5,000 free"):
        in_home(tmp_path, resolver.fetch, site.url())


def test_an_archive_is_unpacked(site, tmp_path):
    site.body = zipped({"model/config.json": b"{}"})
    folder = in_home(tmp_path, resolver.fetch, site.url("model.zip"))
    assert (folder / "model" / "config.json").read_text() == "{}"
    assert not list(tmp_path.rglob("*.zip"))


def test_a_tar_archive_is_refused_before_it_is_requested(site, tmp_path):
    with pytest.raises(UserError, match=r"/model\.tar\.gz: tar archives .*known: \.whl, \.zip"):
        in_home(tmp_path, resolver.fetch, site.url("model.tar.gz"))
    assert not site.asked
