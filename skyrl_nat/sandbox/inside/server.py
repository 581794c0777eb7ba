"""The sandbox's fork server: one preloaded interpreter, one fork per job.

Run as `python -I -B server.py '<settings as JSON>'` by the sandbox's interpreter. Frames of 4 bytes length
and JSON come on stdin, answers go to stdout. Nothing that a policy wrote is ever imported here: a job
runs in a child with walls, limits and a work folder of its own, and everything it started is
killed before the next job. Stdlib only, and never the package itself.
"""

import contextlib
import gc
import json
import os
import select
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

sys.path.append(str(Path(__file__).resolve().parent))

import box
import isolation
import job_clock
import jobs
import processes
from huge_pages import collapse_memory
from watch import JobWatch

LOG_TAIL_BYTES = 4000
POLL_S = 0.05
COUNT_S = 5.0
SPARE_THREADS = 512
"""What the trainer may start while a job runs that has its uid; the job alone is stopped by `max_processes`."""


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
        """Keep the settings; `settings` holds `mode`, `uid`, `limits` and `scratch` (where boxes are made)."""
        self.mode = settings["mode"]
        self.uid = settings["uid"]
        self.limits = settings["limits"]
        self._scratch = settings["scratch"]
        self._family = processes.Family(is_alone=isolation.has_namespaces(self.mode), uid=self.uid)
        self._pid = os.getpid()
        self._num_threads = 0
        self._counted = -COUNT_S
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
        if jobs.find(job["kind"]) is None:
            return {"status": "refused", "output": "", "log": f"unknown job {job['kind']!r}"}
        started = time.monotonic()
        if isolation.has_namespaces(self.mode):
            answer = self._run(job, "")
        else:
            self._count_threads()
            folder = box.make_box(self._scratch, self.uid)
            try:
                answer = self._run(job, folder)
            finally:
                box.remove_box(folder, self.uid)
        answer["wall_s"] = time.monotonic() - started
        return answer

    def _count_threads(self) -> None:
        """Note how many threads the user of the jobs has beside them."""
        now = time.monotonic()
        if not self.uid and now > self._counted + COUNT_S:
            self._num_threads = processes.count_threads(os.getuid()) + SPARE_THREADS
            self._counted = now

    def _run(self, job: dict, folder: str) -> dict:
        result_read, result_write = os.pipe()
        log_read, log_write = os.pipe()
        baseline = processes.read_process(os.getpid())
        child = os.fork()
        if child == 0:
            os.close(result_read)
            os.close(log_read)
            self._in_child(job, folder, result_write, log_write)
        os.close(result_write)
        os.close(log_write)
        watch = JobWatch(self._family, child, self.limits, job["timeout_s"], baseline.resident_kib)
        if isolation.has_namespaces(self.mode):
            watch.depth = 2
        else:
            watch.box, watch.uid = folder, self.uid
            watch.must_show_files = self.mode == isolation.LANDLOCK_MODE
        try:
            return self._collect(watch, child, result_read, log_read)
        finally:
            self._family.kill(child)
            os.close(result_read)
            os.close(log_read)

    def _in_child(self, job: dict, folder: str, result_fd: int, log_fd: int) -> NoReturn:
        """Become the job; never returns."""
        code = 1
        try:
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log_fd, 1), (log_fd, 2)):
                os.dup2(source, target)
            for fd in (self._in, self._out, null, log_fd):
                os.close(fd)
            os.setsid()
            if isolation.has_namespaces(self.mode):
                self._enter_namespaces(result_fd, job["timeout_s"])
                work = self.limits["writable_folders"][0]
            else:
                work = self._enter_box(folder, job["timeout_s"])
            job_clock.hide_from_workers()
            os.chdir(work)
            answer = jobs.run(job, work)
            write_all(result_fd, json.dumps(answer).encode())
            code = 0
        except BaseException as error:  # noqa: BLE001 - the fork must end here whatever happens
            with contextlib.suppress(OSError):
                os.write(2, f"job set-up or answer failed: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)

    def _enter_namespaces(self, result_fd: int, cpu_s: float) -> None:
        isolation.enter_namespaces(self.mode)
        inner = os.fork()  # the first process of the new pid namespace
        if inner:
            os.close(result_fd)
            os.waitpid(inner, 0)
            os._exit(0)
        isolation.mount_private(self.limits)
        isolation.set_limits(self.limits, cpu_s=cpu_s, num_processes=self.limits["max_processes"])
        isolation.drop_privileges(self.uid)
        isolation.set_dumpable(False)
        isolation.close_system_calls(self.mode, self.uid)
        isolation.take_reins(0, can_kill_all=True)

    def _enter_box(self, folder: str, cpu_s: float) -> str:
        """Confine this process to a folder of the machine; returns the work folder in it."""
        work, scratch = f"{folder}/{box.WORK}", f"{folder}/{box.SCRATCH}"
        os.environ |= {"HOME": work, "TMPDIR": scratch}
        is_confined = self.mode == isolation.LANDLOCK_MODE
        isolation.set_limits(self.limits, cpu_s=cpu_s, num_processes=self._num_threads + self.limits["max_processes"])
        if is_confined:
            isolation.drop_privileges(self.uid)
            isolation.set_dumpable(True)  # the server adds up what a job keeps in deleted files
            isolation.close_file_system(self.limits, folder, self.uid)
            isolation.close_system_calls(self.mode, self.uid)
        isolation.take_reins(self._pid, can_kill_all=is_confined)
        return work

    def _collect(self, watch: JobWatch, child: int, result_fd: int, log_fd: int) -> dict:
        """Collect the answer until the job ends, its clock runs out or it outgrows a limit."""
        texts = {result_fd: bytearray(), log_fd: bytearray()}
        open_fds = {result_fd, log_fd}
        status = ""
        while not status:
            # Asked first: what it wrote is then all there. Not reaped: its pid must stay its own.
            has_exited = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            self._read_some(open_fds, texts, log_fd, 0.0 if has_exited else POLL_S)
            reason = ""
            if len(texts[result_fd]) > self.limits["max_output_bytes"]:
                status, reason = "died", "the answer is longer than max_output_bytes"
            elif has_exited or result_fd not in open_fds:
                status = "done" if texts[result_fd] else "died"
            elif watch.is_over():
                status = "timeout"
            else:
                reason = watch.look()
                status = "died" if reason else ""
            if reason:
                texts[log_fd] += f"\n[{reason}]".encode()
        if watch.is_starved():
            status = "starved"
        return {
            "status": status,
            "output": texts[result_fd].decode("utf-8", "replace") if status == "done" else "",
            "log": texts[log_fd].decode("utf-8", "replace")[-LOG_TAIL_BYTES:],
            "cpu_wait_s": watch.waited_s,
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
    tempfile.tempdir = None  # a job has its own
    job_clock.make_page()
    gc.collect()
    gc.freeze()
    collapse_memory()
    answer = {
        "is_ready": True,
        "preloaded": preloaded,
        "preload_s": time.monotonic() - started,
        "rss_mib": processes.read_process(os.getpid()).resident_kib // 1024,
        "num_threads": threading.active_count(),
    }
    write_frame(channel_out, answer)
    Server(settings, channel_in, channel_out).serve()


if __name__ == "__main__":
    main()
