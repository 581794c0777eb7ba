"""The reward part `executes`: the Python of a trace, really run in the sandbox."""

import logging
import shlex
import threading
from pathlib import PurePosixPath

from skyrl_nat.data.traces.code_pieces import CodePiece, named_files, python_pieces
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

_logger = logging.getLogger(__name__)


class Executes:
    """Share of a trace's Python that exits with 0 within the limits. Thread-safe.

    Every `.py` file and fenced block is one job on all files of the trace, so pieces do not see what other pieces did.
    A file of a package is run as a module of it, an `__init__.py` is imported, all else runs as a script without
    arguments. A piece that waits for input, for arguments or for clients does not exit with 0.
    """

    def __init__(self, sandbox: Sandbox, *, timeout_s: float, max_pieces: int) -> None:
        """Take the sandbox, which stays its owner's to close.

        Args:
            sandbox: Where everything runs.
            timeout_s: Wall-clock limit of one piece.
            max_pieces: Pieces of one trace that are run, the first ones; the log says how many were not.
        """
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._max_pieces = max_pieces
        self._lock = threading.Lock()
        self._has_python = False
        self.failures: dict[str, str] = {}
        """Trace id -> how the sandbox failed; such a trace has no such part."""

    def __call__(self, trace: Trace) -> float | None:
        """Return the share, or None where there is no Python or the sandbox failed."""
        pieces = python_pieces(trace)
        if len(pieces) > self._max_pieces:
            _logger.warning("trace %s: %d of %d pieces of code are run", trace.trace_id, self._max_pieces, len(pieces))
        pieces = pieces[: self._max_pieces]
        files = {piece.path: piece.source for piece in pieces} | named_files(trace)
        try:
            if pieces:
                self._require_python()
                _require_layout(files)
            results = [self._exit_code(files, python_command(piece, files)) == 0 for piece in pieces]
        except SandboxError as error:
            self.failures[trace.trace_id] = str(error)
            _logger.warning("trace %s has no part `executes`: %s", trace.trace_id, error)
            return None
        return sum(results) / len(results) if results else None

    def _require_python(self) -> None:
        """Raise SandboxError where an empty program fails: then failures say nothing about the code."""
        with self._lock:
            if not self._has_python and self._exit_code({}, "python -c ''") != 0:
                raise SandboxError("The sandbox must run an empty Python program, but that failed. Check its Python")
            self._has_python = True

    def _exit_code(self, files: dict[str, str], command: str) -> int | None:
        job = SandboxJob(kind="bash", files=files, arguments={"command": command}, timeout_s=self._timeout_s)
        result = self._sandbox.run(job)
        if result.status == "refused":
            raise SandboxError(f"The sandbox must take the files of a trace, it refused them: {result.log}")
        code = result.output.get("exit_code")
        return code if result.status == "done" and isinstance(code, int) else None


def python_command(piece: CodePiece, files: dict[str, str]) -> str:
    """Return the shell command that runs a piece."""
    path = PurePosixPath(piece.path)
    top = path.parent
    while f"{top}/__init__.py" in files:
        top = top.parent
    if top == path.parent:
        return f"python {shlex.quote(piece.path)}"
    parts = path.relative_to(top).with_suffix("").parts
    call = (
        f"-c {shlex.quote('import ' + '.'.join(parts[:-1]))}"
        if parts[-1] == "__init__"
        else f"-m {shlex.quote('.'.join(parts))}"
    )
    return f"PYTHONPATH={shlex.quote(str(top))}:$PYTHONPATH python {call}"


def _require_layout(files: dict[str, str]) -> None:
    """Raise SandboxError where a path is both a file and a folder: nothing can be run then."""
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    if twice := sorted(folders & set(files)):
        raise SandboxError(f"A path must be a file or a folder, but both are recorded: {', '.join(twice[:3])}")
