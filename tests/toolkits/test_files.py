from __future__ import annotations

from pathlib import Path

import pytest

from assay.toolkits.files import read_json, write_bytes, write_text


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    write_bytes(path, b"first")

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match=r"No space.*a\.bin"):
        write_bytes(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none/a\.txt"):
        write_text(tmp_path / "none" / "a.txt", "text")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.json: not"):
        read_json(path)


def test_json_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}
