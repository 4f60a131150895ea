"""The documents agree with each other, with the tree, and with the code."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from prometheus_client import Counter

from relay.cli import COMMANDS
from relay.config.registry import GROUP, load_sink
from relay.config.settings import DatabaseSettings, LogSettings, Route, SinkKeys
from relay.telemetry.metrics import Metrics
from tests.unit.commands.test_cli import call
from tests.unit.configured import write

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/*.md"))
TYPES = ("redis-stream", "sidekiq", "kafka", "sqs", "local", "memory")
LONGEST_LINE = 140
MOST_FILES = 16
MOST_LINES = 250

BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
NAME = re.compile(r"`([\w./*-]+(?:\.(?:py|sql|lua|toml|md)|/))`")


def called(document: Path) -> str:
    return str(document.relative_to(ROOT))


def prose(document: Path) -> str:
    """Without its blocks of code."""
    return BLOCK.sub("", document.read_text())


def section(document: str, title: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    return (ROOT / document).read_text().partition(f"# {title}\n")[2].partition("\n#")[0]


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of the headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(prose(document))}


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        for link in LINK.findall(prose(document)):
            if "://" not in link:
                yield document, link


@pytest.mark.parametrize(
    ("document", "link"), list(links()), ids=lambda part: part if isinstance(part, str) else called(part)
)
def test_link_leads_somewhere(document: Path, link: str) -> None:
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    assert target.exists()
    assert not anchor or anchor in anchors(target)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {(document.parent / link.partition("#")[0]).resolve() for document, link in links() if document in new}
        new -= reached
    assert set(ROOT.glob("docs/*.md")) <= reached


@pytest.mark.parametrize("document", DOCUMENTS, ids=called)
def test_no_line_is_too_long(document: Path) -> None:
    lines = [line for line in prose(document).splitlines() if not line.lstrip().startswith("|")]
    assert [line for line in lines if len(line) > LONGEST_LINE] == []


def configurations() -> Iterator[object]:
    for document in DOCUMENTS:
        for number, (language, text) in enumerate(BLOCK.findall(document.read_text())):
            if language == "toml":
                yield pytest.param(text, id=f"{called(document)}-{number}")


@pytest.mark.parametrize("text", list(configurations()))
def test_configuration_is_right(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tomllib.loads(text)
    if "sinks" not in parts:
        return  # a part of one, such as a few routes
    if "database" not in parts:
        monkeypatch.setenv("RELAY_DATABASE_URL", "postgresql://relay@db/app")
    for variable in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(variable, "something")
    assert call("--config", str(write(tmp_path, text)), "config", "check") == 0


@pytest.mark.parametrize("kind", TYPES)
def test_every_key_of_a_sink_type_is_documented(kind: str) -> None:
    rows = re.split(r"^\| `(?=[\w-]+` \|)", section("docs/configuration.md", "`[sinks.NAME]`"), flags=re.MULTILINE)
    (own,) = (row for row in rows if row.startswith(f"{kind}` "))
    assert [key for key in load_sink(kind).Options.model_fields if f"`{key}`" not in own] == []


def test_no_sink_type_is_forgotten() -> None:
    ours = {entry.name for entry in entry_points(group=GROUP) if entry.value.startswith("sinks.")}
    assert ours == set(TYPES)


@pytest.mark.parametrize(
    ("title", "model"),
    [
        ("`[database]`", DatabaseSettings),
        ("`[sinks.NAME]`", SinkKeys),
        ("`[[routes]]`", Route),
        ("`[log]`", LogSettings),
    ],
)
def test_every_key_is_documented(title: str, model: type[DatabaseSettings | SinkKeys | Route | LogSettings]) -> None:
    text = section("docs/configuration.md", title)
    assert [key for key in model.model_fields if f"`{key}`" not in text] == []


def test_every_command_is_documented() -> None:
    text = section("docs/operations.md", "Commands")
    assert [name for name in COMMANDS if f"`relay {name}" not in text] == []


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    metrics = Metrics().registry.collect()
    names = [one.name + "_total" * (one.type == Counter._type) for one in metrics]
    assert names
    assert [name for name in names if f"`{name}" not in text] == []


def named(text: str) -> Iterator[Path]:
    """The files and folders that a text names; a bare name is in the folder of the one before it in its item."""
    for block in re.split(r"\n(?=\||- |\d+\. |\n)", text):
        folder = ROOT
        for name in NAME.findall(block):
            if "NAME" in name:
                continue
            found = list(ROOT.glob(name) if "/" in name else folder.glob(name)) or list(ROOT.glob(name))
            assert found, f"{name}: there is no such file"
            yield from found
            folder = found[0] if name.endswith("/") else found[0].parent


def test_what_contributing_names_is_there() -> None:
    assert list(named((ROOT / "CONTRIBUTING.md").read_text()))


def folders() -> list[Path]:
    """Every folder with code or SQL of the product."""
    found = {path.parent for root in ("relay", "sinks", "sql") for path in (ROOT / root).rglob("*.*")}
    return sorted(folder for folder in found if folder.name != "__pycache__")


@pytest.mark.parametrize("folder", folders(), ids=called)
def test_contributing_names_every_folder(folder: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named_there = {path.parent if path.is_file() else path for path in named(text)}
    assert {folder, folder.parent} & named_there, f"add {called(folder)}/ to the rooms in CONTRIBUTING.md"


@pytest.mark.parametrize("folder", folders(), ids=called)
def test_folder_is_small(folder: Path) -> None:
    """What does not fit on a screen is not seen: at most sixteen files, none longer than 250 lines."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != "py.typed"]
    assert len(files) <= MOST_FILES
    lines = {called(path): len(path.read_text().splitlines()) for path in files if path.suffix in (".py", ".lua")}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


@pytest.mark.parametrize("folder", [one for one in folders() if list(one.glob("*.py"))], ids=called)
def test_folder_says_what_it_is_for(folder: Path) -> None:
    module = ast.parse((folder / "__init__.py").read_text())
    text = ast.get_docstring(module)
    assert text
    if folder.parent != ROOT:
        first = [name for name in re.findall(r"`(\w+\.py)`", text) if (folder / name).exists()]
        assert first, f"the docstring of {called(folder)} must say which file to read first"
