"""How a file is replaced."""

import os

import pytest

from instaslice.files import write_atomically


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hard link"])
def test_a_link_that_waits_where_we_write_first_leads_nowhere(tmp_path, link):
    precious, file = tmp_path / "precious", tmp_path / "0.1"
    precious.write_text("theirs")
    link(precious, tmp_path / ".0.1.new")
    write_atomically(file, b"ours")
    assert (precious.read_text(), file.read_bytes()) == ("theirs", b"ours")
    assert not file.is_symlink()


def test_what_a_process_that_was_cut_off_left_is_written_over(tmp_path):
    (tmp_path / ".0.1.new").write_text("half a file, and longer")
    write_atomically(tmp_path / "0.1", b"ours")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("0.1", b"ours")]


def test_with_sync_the_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    seen = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (seen.append((tmp_path / "0.1").exists()), fsync(number)))
    write_atomically(tmp_path / "0.1", b"ours", sync=True)
    assert seen == [False]
