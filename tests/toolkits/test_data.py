"""Where data are looked for, and how they are fetched."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from assay.toolkits.data import MissingData, cache_dir, fetch_file, find_data


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    return tmp_path


@pytest.fixture
def server(tmp_path):
    (tmp_path / "www").mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "www")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield tmp_path / "www", f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_the_users_folder_comes_before_the_cache(folders, monkeypatch):
    cached = cache_dir("x") / "data" / "a.txt"
    cached.parent.mkdir(parents=True)
    cached.write_text("cached")
    assert find_data("x", "a.txt") == cached
    (folders / "mine" / "x").mkdir(parents=True)
    (folders / "mine" / "x" / "a.txt").write_text("mine")
    monkeypatch.setenv("ASSAY_DATA", str(folders / "mine"))
    assert find_data("x", "a.txt").read_text() == "mine"
    (folders / "mine" / "x" / "a.txt").unlink()
    assert find_data("x", "a.txt") == cached


def test_missing_data_say_where_they_were_looked_for_and_what_helps(folders):
    with pytest.raises(MissingData, match=r"x/a\.txt: not in .*cache.*assay data fetch x"):
        find_data("x", "a.txt")


def test_a_fetched_file_is_checked_and_not_fetched_twice(server, folders):
    www, address = server
    (www / "a.txt").write_bytes(b"content")
    target = folders / "in" / "a.txt"
    fetch_file(f"{address}/a.txt", hashlib.sha256(b"content").hexdigest(), target)
    assert target.read_bytes() == b"content"
    (www / "a.txt").unlink()
    fetch_file(f"{address}/a.txt", hashlib.sha256(b"content").hexdigest(), target)


def test_a_file_with_another_content_is_refused_and_not_kept(server, folders):
    www, address = server
    (www / "a.txt").write_bytes(b"something else")
    target = folders / "in" / "a.txt"
    with pytest.raises(ValueError, match="not the expected one"):
        fetch_file(f"{address}/a.txt", hashlib.sha256(b"content").hexdigest(), target)
    assert not target.exists()


def test_an_address_that_does_not_answer_is_an_os_error(server, folders):
    _, address = server
    with pytest.raises(OSError, match="404"):
        fetch_file(f"{address}/none.txt", "0" * 64, folders / "in" / "none.txt")
