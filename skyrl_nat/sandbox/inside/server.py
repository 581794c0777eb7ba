"""The sandbox's fork server: one preloaded interpreter, one fork per job.

Run as `python -I -B server.py '<settings as JSON>'` by the sandbox's interpreter. Frames of 4 bytes length
and JSON come on stdin, answers go to stdout. Nothing that a policy wrote is ever imported here: a job
runs in a child with namespaces, limits and a work folder of its own, and everything it started is
killed before the next job. Stdlib only, and never the package itself.
"""

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

import isolation
import jobs

LOG_TAIL_BYTES = 4000
POLL_S = 0.05
KILL_WAIT_S = 5.0
ANSWER_S = 1.0
"""A job ends its workers at the limit itself; this much later the server ends the job."""
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def read_exactly(fd: int, size: int) -> bytes:
    """Return `size` bytes, or what came before the end."""
    data = bytearray()
    while len(data) < size:
        chunk = os.read(fd, min(size - len(data), 1 << 20))
        if not chunk:
            break
        data += chunk
    return bytes(data)


def write_all(fd: int, data: bytes) -> None:
    """Write everything."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_frame(fd: int, answer: dict) -> None:
    """Send one answer to the parent."""
    data = json.dumps(answer).encode()
    write_all(fd, struct.pack(">I", len(data)) + data)


class Server:
    """Owns the channel to the parent and the life of one job at a time."""

    def __init__(self, settings: dict, channel_in: int, channel_out: int) -> None:
        """Keep the settings; `settings` holds `mode`, `uid` and `limits`."""
        self.mode = settings["mode"]
        self.uid = settings["uid"]
        self.limits = settings["limits"]
        self._in = channel_in
        self._out = channel_out

    def serve(self) -> None:
        """Answer jobs until the parent closes the channel."""
        while True:
            head = read_exactly(self._in, 4)
            if len(head) < 4:
                return
            (size,) = struct.unpack(">I", head)
            job = json.loads(read_exactly(self._in, size))
            write_frame(self._out, self._answer(job))

    def _answer(self, job: dict) -> dict:
        if job["kind"] not in jobs.JOBS:
            return {"status": "refused", "output": "", "log": f"unknown job {job['kind']!r}"}
        started = time.monotonic()
        folder = isolation.WORK_FOLDER
        if self.mode == isolation.PLAIN_MODE:
            folder = tempfile.mkdtemp(prefix="skyrl-nat-job-")
        try:
            answer = self._run(job, folder)
        finally:
            kill_everything(self.mode)
            if self.mode == isolation.PLAIN_MODE:
                shutil.rmtree(folder, ignore_errors=True)
        answer["wall_s"] = time.monotonic() - started
        return answer

    def _run(self, job: dict, folder: str) -> dict:
        result_read, result_write = os.pipe()
        log_read, log_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(result_read)
            os.close(log_read)
            self._in_child(job, folder, result_write, log_write)
        os.close(result_write)
        os.close(log_write)
        try:
            return self._watch(child, result_read, log_read, job["timeout_s"])
        finally:
            os.close(result_read)
            os.close(log_read)

    def _in_child(self, job: dict, folder: str, result_fd: int, log_fd: int) -> None:
        """Become the job; never returns."""
        code = 1
        try:
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log_fd, 1), (log_fd, 2)):
                os.dup2(source, target)
            for fd in (self._in, self._out, null, log_fd):
                os.close(fd)
            os.setsid()
            if self.mode != isolation.PLAIN_MODE:
                isolation.enter_namespaces(self.mode)
                inner = os.fork()  # the first process of the new pid namespace
                if inner:
                    os.close(result_fd)
                    os.waitpid(inner, 0)
                    os._exit(0)
                isolation.mount_private(self.limits)
            isolation.set_limits(self.limits | {"cpu_s": job["timeout_s"]}, self.mode)
            if self.mode != isolation.PLAIN_MODE:
                isolation.drop_privileges(self.mode, self.uid)
            isolation.set_dumpable(False)
            os.chdir(folder)
            answer = jobs.run(job, folder)
            write_all(result_fd, json.dumps(answer).encode())
            code = 0
        except BaseException as error:  # noqa: BLE001 - the fork must end here whatever happens
            with contextlib.suppress(OSError):
                os.write(2, f"job set-up or answer failed: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)

    def _watch(self, child: int, result_fd: int, log_fd: int, timeout_s: float) -> dict:
        """Collect the answer until the job ends, its clock runs out or it outgrows a limit."""
        deadline = time.monotonic() + timeout_s + ANSWER_S
        baseline_kib = resident_kib(os.getpid())
        texts = {result_fd: bytearray(), log_fd: bytearray()}
        open_fds = {result_fd, log_fd}
        status = ""
        while not status:
            has_exited = bool(os.waitpid(child, os.WNOHANG)[0])  # asked first: what it wrote is then all there
            self._read_some(open_fds, texts, log_fd, 0.0 if has_exited else POLL_S)
            reason = ""
            if len(texts[result_fd]) > self.limits["max_output_bytes"]:
                status, reason = "died", "the answer is longer than max_output_bytes"
            elif has_exited or result_fd not in open_fds:
                status = "done" if texts[result_fd] else "died"
            elif time.monotonic() > deadline:
                status = "timeout"
            else:
                reason = self._excess(baseline_kib)
                status = "died" if reason else ""
            if reason:
                texts[log_fd] += f"\n[{reason}]".encode()
        output = texts[result_fd].decode("utf-8", "replace") if status == "done" else ""
        return {
            "status": status,
            "output": output,
            "log": texts[log_fd].decode("utf-8", "replace")[-LOG_TAIL_BYTES:],
        }

    def _read_some(self, open_fds: set, texts: dict, log_fd: int, wait_s: float) -> None:
        """Read what is there, after at most `wait_s`; all of it where nothing more can come."""
        while open_fds:
            ready, _, _ = select.select(list(open_fds), [], [], wait_s)
            for fd in ready:
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    open_fds.discard(fd)
                texts[fd] += chunk
                del texts[log_fd][:-LOG_TAIL_BYTES]
            if wait_s or not ready or max(map(len, texts.values())) > self.limits["max_output_bytes"]:
                return

    def _excess(self, baseline_kib: int) -> str:
        """Return which limit the whole job has outgrown; limits of single processes do not add up."""
        pids = descendants(self.mode)
        if len(pids) > self.limits["max_processes"] + 2:
            return f"killed: {len(pids)} processes"
        grown_mib = sum(max(0, resident_kib(pid) - baseline_kib) for pid in pids) // 1024
        if grown_mib > self.limits["memory_mib"]:
            return f"killed: {grown_mib} MiB in all processes"
        return ""


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process, 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KIB
    except (OSError, IndexError, ValueError):
        return 0


def descendants(mode: str) -> list[int]:
    """Return the pids that belong to the running job."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    if mode != isolation.PLAIN_MODE:
        return [pid for pid in pids if pid > 1 and pid != os.getpid()]
    parents = {}
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            parents[pid] = int(stat.rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
    found = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return sorted(found - {os.getpid()})


def kill_everything(mode: str) -> None:
    """Kill and reap all that a job started, its orphans too."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        if mode == isolation.PLAIN_MODE:
            for pid in descendants(mode):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        else:
            # In this pid namespace "everybody" is the job; init and the caller are spared.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not descendants(mode):
            return
        time.sleep(0.002)
    raise RuntimeError("processes of a job survived SIGKILL")


def main() -> None:
    """Preload, say so, serve."""
    settings = json.loads(sys.argv[1])
    channel_in, channel_out = os.dup(0), os.dup(1)
    # A print of an imported library must not enter the channel.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    isolation.set_dumpable(False)
    isolation.become_subreaper()
    started = time.monotonic()
    try:
        preloaded = jobs.preload(settings["preload"])
    except ImportError as error:
        write_frame(channel_out, {"is_ready": False, "reason": f"{type(error).__name__}: {error}"})
        return
    gc.collect()
    gc.freeze()
    answer = {
        "is_ready": True,
        "preloaded": preloaded,
        "preload_s": time.monotonic() - started,
        "rss_mib": resident_kib(os.getpid()) // 1024,
        "num_threads": threading.active_count(),
    }
    write_frame(channel_out, answer)
    Server(settings, channel_in, channel_out).serve()


if __name__ == "__main__":
    main()
