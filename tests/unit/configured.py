"""Configuration files for tests, and what comes of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from relay.config.settings import Settings, load
from relay.errors import ConfigError

DATABASE = 'database = { url = "postgresql://relay@db/app" }\n'

MEMORY = DATABASE + '[sinks.orders]\ntype = "memory"\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "relay.toml"
    file.write_text(text, encoding="utf-8")
    return file


def settings(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Settings:
    return load(write(folder, text), env or {})


def problems(folder: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    """The problems that loading the file reports, without the file's own folder in front."""
    return problems_of(write(folder, text), env)


def problems_of(file: Path, env: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, env or {})
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert caught.value.exit_code == 2
    return [line.replace(str(file), file.name) for line in caught.value.problems]


def plug_in(folder: Path, monkeypatch: pytest.MonkeyPatch, type_name: str, source: str) -> None:
    """Install a distribution that brings one sink: `Plugged` in the module `plugged`, which is `source`."""
    info = folder / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[outbox_relay.sinks]\n{type_name} = plugged:Plugged\n")
    (folder / "plugged.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "plugged", raising=False)
