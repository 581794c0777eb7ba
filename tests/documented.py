"""The commands that the pages show: read from their fences, split as a shell would, and named by kind.

A fence that is not checked as a whole has `<!-- not run: REASON -->` on the line above it. Kinds of which a single
command is not run are listed here, with their reasons.
"""

import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"<!-- not run: (\S.*\S) -->")
SHOWN = ("bash", "sh", "shell", "console")

RUN = ("hardware", "plan")
"""Subcommands that are run as they stand, wherever the tests are."""
RUN_ON_A_RUN = ("evaluate", "compare", "export", "replay", "analyze")
"""Subcommands that are run on a small trained run; see tests/integration/test_documented_commands.py."""
NOT_RUN = {
    "train": "trains for minutes to days; tests/integration trains",
    "ablate": "trains several runs; tests/integration/test_ablation.py does",
    "doctor": "loads a model of hundreds of MB; tests/unit/doctor examines a small one",
    "submit": "needs a Ray cluster; tests/integration/test_ray_job.py has one",
    "serve": "stays; tests/integration/test_service_in_ray.py starts it",
    "deploy": "needs a trained model and stays; tests/unit/deploy and tests/integration/test_whole_way.py do it",
    "prepare": "proves every task in the sandbox for minutes; test_documented_commands.py makes a small set",
    "traces": "needs recorded runs of others; tests/integration/test_trace_round_trip.py has them",
    "label": "stays and waits for a person; tests/unit/data has the page",
    "monitoring": "needs a running service; tests/integration/test_monitoring.py has one",
}
"""Subcommands whose arguments and overrides alone are checked, with the reason."""
SCRIPTS = {
    "python": "file, flags and syntax are checked; most work for minutes or write into the checkout",
    "bash": "file, flags, syntax and overrides are checked; they install or train",
    "sbatch": "needs Slurm; tests/integration/test_slurm.py has one",
    "pip": "downloads; that the extras exist is checked",
    "curl": "needs a running service; that its API has the path is checked",
    "tensorboard": "stays",
}
"""Other programs, with what is done in the place of a run."""
BUILTINS = ("cd", "export", "mkdir", "cat", "cp", "ls", "source", "git", "echo")
"""Words of the shell that need no check of their own."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a fence."""

    page: str
    line: int
    words: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    """Set for this command alone."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {' '.join(self.words)}"

    @property
    def program(self) -> str:
        """The command's name without its folder; versions of Python are all `python`."""
        return re.sub(r"^python[\d.]*$", "python", Path(self.words[0]).name)


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of commands on a page."""

    page: str
    line: int
    text: str
    reason: str
    """Why nothing of it is run or checked; empty for most."""

    @property
    def plain(self) -> str:
        """Text in which names in angle brackets and dots are words."""
        return re.sub(r"<([\w-]+)>", lambda found: found[1].upper(), self.text).replace("…", "NAME")

    def commands(self) -> list[Command]:
        """Return its commands; functions that it defines are replaced by what they call."""
        found, functions, line, pending = [], {}, self.line, ""
        for offset, text in enumerate(self.plain.splitlines()):
            if not pending:
                line = self.line + offset + 1
            pending += text
            if text.endswith("\\"):
                pending = pending[:-1]
                continue
            if function := re.fullmatch(r"(\w+)\(\) \{ (.*?) \"\$@\"; \}", pending.strip()):
                functions[function[1]] = shlex.split(function[2])
            else:
                try:
                    found += [(line, words) for words in split(pending)]
                except ValueError:  # a quotation that goes on
                    pending += "\n"
                    continue
            pending = ""
        assert not pending, f"{self.page}:{line}: a command does not end: {pending}"
        return [self._command(line, words, functions) for line, words in found]

    def _command(self, line: int, words: list[str], functions: dict[str, list[str]]) -> Command:
        variables = {}
        while words and (found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)):
            variables[found[1]] = found[2]
            words = words[1:]
        words = [*functions.get(words[0], words[:1]), *words[1:]] if words else []
        return Command(self.page, line, tuple(words), variables)


def split(text: str) -> list[list[str]]:
    """Return the words of the commands of one line, without comments and redirections.

    Raises:
        ValueError: A quotation is open.
    """
    lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "VALUE", text), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    is_target = False
    for word in lexer:
        if is_target:
            is_target = False
        elif set(word) <= {"<", ">"}:
            is_target = True
        elif set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def pages() -> list[Path]:
    """Return every page that a reader meets: at the top, in docs/ and beside the examples and benchmarks."""
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    ]
    return sorted(found)


@cache
def fences() -> tuple[Fence, ...]:
    """Return all blocks of commands."""
    return tuple(fence for page in pages() for fence in fences_of(page))


def fences_of(page: Path) -> list[Fence]:
    """Return the blocks of commands of one page."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        opened = re.fullmatch(r"(\s*)```(\w+)", line)
        if opened and opened[2] in SHOWN:
            end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
            text = "\n".join(text.removeprefix(opened[1]) for text in lines[number + 1 : end])
            mark = MARK.fullmatch(lines[number - 1].strip()) if number else None
            place = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
            found.append(Fence(place, number + 1, text, mark[1] if mark else ""))
    return found


def commands() -> list[Command]:
    """Return the commands of all blocks that are checked; what only sets variables is none."""
    return [command for fence in fences() if not fence.reason for command in fence.commands() if command.words]


def kind_of(command: Command) -> str:
    """Return how a command is treated: `run`, `run on a run`, `parsed`, `script`, `shell`, or `` where nobody knows."""
    if command.program == "skyrl-nat":
        name = command.words[1] if len(command.words) > 1 else ""
        return "run" if name in RUN else "run on a run" if name in RUN_ON_A_RUN else "parsed" if name in NOT_RUN else ""
    return "script" if command.program in SCRIPTS else "shell" if command.program in BUILTINS else ""
