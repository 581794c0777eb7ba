"""Every command that the pages show can be given: programs, flags, overrides, scripts and paths exist."""

import argparse
import ast
import importlib.util
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from documented import NOT_RUN, ROOT, RUN, RUN_ON_A_RUN, Command, Fence, commands, fences, fences_of, kind_of, pages
from service_parts import settings

from skyrl_nat import cli
from skyrl_nat.config.load import load_config
from skyrl_nat.config.overrides import parse_sweep
from skyrl_nat.service.app import create_app

ALL = commands()
OVERRIDE = re.compile(r"[~+]*[a-z_][\w./]*=.*", re.DOTALL)


def of_kind(*kinds: str) -> list[Command]:
    return [command for command in ALL if kind_of(command) in kinds]


def of_program(*programs: str) -> list[Command]:
    return [command for command in ALL if command.program in programs]


@cache
def composed(*overrides: str) -> None:
    load_config(overrides)


@cache
def parser() -> argparse.ArgumentParser:
    return cli.command_parser()


def test_every_command_is_of_a_known_kind():
    unknown = [str(command) for command in ALL if not kind_of(command)]
    assert not unknown, "name these in tests/documented.py, or put <!-- not run: REASON --> above the fence"
    assert len(ALL) > 60


def test_every_subcommand_is_treated():
    (subcommands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert set(subcommands.choices) == {*RUN, *RUN_ON_A_RUN, *NOT_RUN}


@pytest.mark.parametrize("fence", fences(), ids=lambda fence: f"{fence.page}:{fence.line}")
def test_every_fence_is_good_shell(fence):
    done = subprocess.run(["bash", "-n"], input=fence.plain, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", of_kind("run", "run on a run", "parsed"), ids=str)
def test_options_and_overrides_are_taken(command):
    options = cli._parse(command.words[1:])
    overrides = getattr(options, "overrides", [])
    composed(*(overrides if isinstance(overrides, list) else []))
    for word in getattr(options, "vary", None) or []:
        for override in parse_sweep(word):
            composed(override)


@pytest.mark.parametrize("command", of_kind("run"), ids=str)
def test_quick_commands_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(command.words[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", of_program("python"), ids=str)
def test_python_programs_are_there_and_know_their_flags(command):
    first, *words = command.words[1:]
    if first == "-m":
        assert importlib.util.find_spec(words[0]) is not None
        paths = [word for word in words[1:] if word.startswith("tests")]
        assert all((ROOT / path.partition("::")[0]).exists() for path in paths)
    elif first != "-c" and not is_readers_own(command, first):
        texts = "\n".join(program_texts(ROOT / with_variables(first)))
        ast.parse((ROOT / with_variables(first)).read_text(encoding="utf-8"))
        assert not [word for word in flags(words) if f'"{word}"' not in texts and f"'{word}'" not in texts]
        composed(*(word for word in words if OVERRIDE.fullmatch(word)))


@pytest.mark.parametrize("command", of_program("bash", "sbatch"), ids=str)
def test_shell_programs_are_there_and_know_their_flags(command):
    words = list(command.words[1:])
    (at,) = (i for i, word in enumerate(words) if word.endswith((".sh", ".sbatch")) and "=" not in word)
    # Slurm's own options stand before; its nodes become the trainer's.
    nodes = [word.replace("--nodes", "cluster.num_nodes") for word in words[:at] if word.startswith("--nodes=")]
    program, words = ROOT / with_variables(words[at]), words[at + 1 :]
    subprocess.run(["bash", "-n", str(program)], check=True)
    texts = "\n".join(program_texts(program))
    assert not [word for word in flags(words) if word not in texts]
    composed(*nodes, *(word for word in words if OVERRIDE.fullmatch(word)))
    for value in command.variables.values():
        composed(*(word for word in value.split() if OVERRIDE.fullmatch(word)))


@pytest.mark.parametrize("command", of_program("pip"), ids=str)
def test_extras_to_install_are_declared(command):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [name for word in command.words for name in re.findall(r"\[([\w,-]+)\]", word)]
    assert {extra for names in named for extra in names.split(",")} <= set(declared)
    assert all((ROOT / word).is_file() for word in command.words if word.endswith((".lock", ".txt")))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    return Service(tmp_path_factory.mktemp("service"))


@pytest.mark.parametrize("command", of_program("curl"), ids=str)
def test_addresses_are_those_of_the_service(command, service):
    (address,) = (word for word in command.words[1:] if re.match(r"(\$\w+|http://[\w.:]+)/", word))
    path = re.sub(r"^(\$\w+|http://[^/]+)", "", address).partition("?")[0]
    is_post = "POST" in command.words or "-d" in command.words
    assert (path, "post" if is_post else "get") in service


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_within_sentences_have_known_names_flags_and_keys(page):
    text = re.sub(r"^\s*```.*?^\s*```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`skyrl-nat ([^`]+)`", text):
        node, words = parser(), shlex.split(" ".join(span.split()))
        while groups := [action for action in node._actions if isinstance(action, argparse._SubParsersAction)]:
            if not words:
                break
            node = groups[0].choices[words.pop(0)]
        assert not [flag for flag in flags(words) if flag not in node._option_string_actions], span
        keys = [word for word in words if OVERRIDE.fullmatch(word) and not re.search(r"[A-Z…]|\.\.\.", word)]
        composed(*keys)


def is_readers_own(command: Command, path: str) -> bool:
    """Return whether a program is one that its page shows in full, in a block that begins with its path."""
    is_ours = (ROOT / with_variables(path)).parent.exists()
    return not is_ours and f"```python\n# {path}\n" in (ROOT / command.page).read_text(encoding="utf-8")


def with_variables(word: str) -> str:
    """Put in what a page's first lines set, such as `here=examples/jira_workflow`."""
    known = {
        name: value for fence in fences() for command in fence.commands() for name, value in command.variables.items()
    }
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known[found[1]], word)


def flags(words: list[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]


def program_texts(program: Path, seen: set[Path] | None = None) -> Iterator[str]:
    """Yield a program's text, and those of the programs that it calls or imports from its own folder."""
    seen = set() if seen is None else seen
    if program in seen or not program.is_file():
        return
    seen.add(program)
    text = program.read_text(encoding="utf-8")
    yield text
    for name in re.findall(r"[\w/-]+\.(?:py|sh)\b", text):
        for folder in (program.parent, ROOT, program.parents[1]):
            yield from program_texts(folder / name.lstrip("/"), seen)
    for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE):
        yield from program_texts(program.parent / f"{name}.py", seen)


class Service:
    """Paths and methods of the training service, as its OpenAPI names them."""

    def __init__(self, folder: Path) -> None:
        self.paths = create_app(settings(folder)).openapi()["paths"]

    def __contains__(self, asked: tuple[str, str]) -> bool:
        path, method = asked
        if path == "/openapi.json":
            return True
        patterns = {re.sub(r"\{\w+:path\}", ".+", re.sub(r"\{\w+\}", ".+", known)): known for known in self.paths}
        return any(re.fullmatch(pattern, path) and method in self.paths[known] for pattern, known in patterns.items())


def page_of(folder: Path, text: str) -> list[Fence]:
    (folder / "page.md").write_text(text)
    return fences_of(folder / "page.md")


def test_commands_are_read_as_a_shell_reads_them(tmp_path):
    train = "A=1 skyrl-nat train \\\n  a.b='x # y' # said"
    (fence,) = page_of(tmp_path, f'```bash\n{train}\nask() {{ curl -s "$@"; }}\nask $at/x; cat <name> > file\n```\n')
    found = fence.commands()
    assert [command.words for command in found] == [
        ("skyrl-nat", "train", "a.b=x # y"),
        ("curl", "-s", "$at/x"),
        ("cat", "NAME"),
    ]
    assert found[0].variables == {"A": "1"}
    assert [command.line for command in found] == [2, 5, 5]


def test_a_fence_with_a_reason_is_left_out_and_other_comments_are_none(tmp_path):
    first, second = page_of(
        tmp_path, "<!-- not run: needs Slurm -->\n```bash\nx\n```\n<!-- note -->\n```bash\ny\n```\n```json\n{}\n```\n"
    )
    assert (first.reason, second.reason) == ("needs Slurm", "")


@pytest.mark.parametrize("words", [("make", "all"), ("skyrl-nat", "fly"), ("skyrl-nat",)])
def test_what_nobody_named_is_of_no_kind(words):
    assert kind_of(Command("page.md", 1, words)) == ""


@pytest.mark.parametrize("words", [("train", "trainer.stepz=1"), ("train", "experiment=none_such"), ("plan", "--fast")])
def test_a_wrong_command_would_be_found(words):
    with pytest.raises((SystemExit, cli.ConfigError)):
        test_options_and_overrides_are_taken(Command("page.md", 1, ("skyrl-nat", *words)))


def test_python_blocks_compile():
    blocks = [
        (page, block)
        for page in sorted(ROOT.glob("docs/*.md"))
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    for page, block in blocks:
        compile(block, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert len(blocks) > 4
