"""Attacks on the confined back end; each must fail for the attacker."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox, container_options


@pytest.fixture(scope="module")
def sandbox() -> Iterator[BubblewrapSandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", "dummy-secret-1")
        patch.setenv("GEMINI_API_KEY", "dummy-secret-2")
        opened = BubblewrapSandbox(SandboxConfig(python=sys.executable, max_processes=20), preload=("json",))
        try:
            opened.start()
        except SandboxError as error:
            pytest.skip(f"this machine has no namespaces: {error}")
        yield opened
        opened.close()


def attack(sandbox: BubblewrapSandbox, code: str, **arguments: Any) -> dict[str, Any]:
    lines = ["def attempt():", *("    " + line for line in code.splitlines())]
    lines += ["try:", "    emit({'got': attempt()})", "except BaseException as error:"]
    lines += ["    emit({'error': type(error).__name__})"]
    job = SandboxJob(kind="python", files={"main.py": "\n".join(lines)}, arguments=arguments, timeout_s=6.0)
    result = sandbox.run(job)
    assert result.status == "done", result
    return result.output["reports"][0]


def test_trainer_secrets_are_nowhere_sb_14(sandbox: BubblewrapSandbox) -> None:
    code = (
        "import glob, os\ntexts = [str(dict(os.environ))]\n"
        "for path in glob.glob('/proc/*/environ') + [os.path.expanduser('~/.netrc'), '/root/.netrc']:\n"
        "    try:\n        texts.append(open(path, errors='replace').read())\n"
        "    except OSError:\n        pass\nreturn ' '.join(texts)"
    )
    answer = attack(sandbox, code)
    assert "dummy-secret" not in str(answer)
    assert "WANDB" not in str(answer)


def test_host_files_are_not_there(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("host")
    for path in (str(secret), "/etc/passwd", "/etc/shadow", str(Path(__file__))):
        assert "error" in attack(sandbox, "return open(arguments['path']).read()", path=path), path
    linked = "import os\nos.symlink(arguments['path'], 'link')\nreturn open('link').read()"
    assert "error" in attack(sandbox, linked, path=str(secret))


def test_nothing_outside_the_work_folder_can_be_written(sandbox: BubblewrapSandbox) -> None:
    for folder in ("/", "/usr", "/opt/skyrl-nat-sandbox", str(Path(sys.prefix)), "/etc"):
        assert "error" in attack(sandbox, "open(arguments['f'] + '/x', 'w')\nreturn 1", f=folder), folder


def test_there_is_no_network(sandbox: BubblewrapSandbox) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        code = "import socket\nsocket.create_connection(('127.0.0.1', arguments['port']), 2)\nreturn 1"
        assert "error" in attack(sandbox, code, port=server.getsockname()[1])
    datagram = "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\nreturn s.sendto(b'x', ('192.0.2.1', 53))"
    assert "error" in attack(sandbox, datagram)


def test_forks_stop_at_the_limit_sb_13(sandbox: BubblewrapSandbox) -> None:
    code = (
        "import os, time\nnum = 0\n"
        "try:\n    while num < 60:\n"
        "        if os.fork() == 0:\n            time.sleep(20)\n            os._exit(0)\n        num += 1\n"
        "except OSError:\n    pass\nreturn num"
    )
    job = SandboxJob(
        kind="python",
        files={"main.py": f"def f():\n    {code.replace(chr(10), chr(10) + '    ')}\nemit({{'got': f()}})"},
    )
    result = sandbox.run(job)
    stopped_by_kernel = result.status == "done" and result.output["reports"][0]["got"] <= 20
    stopped_by_server = result.status == "died" and "processes" in result.log
    assert stopped_by_kernel or stopped_by_server


def test_files_in_memory_are_bounded(sandbox: BubblewrapSandbox) -> None:
    code = (
        "total = 0\ntry:\n    for i in range(12):\n        with open(arguments['f'] + f'/{i}', 'wb') as file:\n"
        "            for _ in range(50):\n                total += file.write(b'x' * (1 << 20))\n"
        "except OSError:\n    pass\nreturn total >> 20"
    )
    for folder in (".", "/dev/shm", "/tmp"):
        answer = attack(sandbox, code, f=folder)
        assert answer.get("got", 0) <= 256, folder


def test_memory_of_many_processes_is_added_up(sandbox: BubblewrapSandbox) -> None:
    code = (
        "import os, time\n"
        "for _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(400 << 20)\n"
        "        x[::4096] = b'y' * len(x[::4096])\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)\n"
    )
    result = sandbox.run(SandboxJob(kind="python", files={"main.py": code}, timeout_s=40.0))
    assert result.status == "died"
    assert "MiB in all processes" in result.log


def test_privileges_cannot_be_won_back(sandbox: BubblewrapSandbox) -> None:
    call = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    for code in (
        "return libc.unshare(0x10000000)",
        "return libc.mount(b'tmpfs', b'/job', b'tmpfs', 0, None)",
        "return libc.umount2(b'/proc', 2)",
        "return libc.ptrace(16, 1, 0, 0)",
        "return libc.setns(0, 0)",
    ):
        assert attack(sandbox, call + code) == {"got": -1}, code
    assert "error" in attack(sandbox, "import os\nos.setuid(0)\nreturn os.getuid()")


def test_other_processes_and_the_first_one_are_out_of_reach(sandbox: BubblewrapSandbox) -> None:
    alive = "import os, signal\nos.kill(1, signal.SIGKILL)\nreturn os.path.exists('/proc/1')"
    assert attack(sandbox, alive) == {"got": True}
    assert "error" in attack(sandbox, "return open('/proc/1/environ').read()")
    assert "error" in attack(sandbox, "import os\nreturn os.listdir('/proc/1/fd')")
    count = "import os\nreturn sum(name.isdigit() for name in os.listdir('/proc'))"
    assert attack(sandbox, count)["got"] <= 2


def test_a_job_that_kills_everything_hurts_only_itself(sandbox: BubblewrapSandbox) -> None:
    restarts = sandbox.num_restarts
    sandbox.run(SandboxJob(kind="python", files={"main.py": "import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)"}))
    assert attack(sandbox, "return 1") == {"got": 1}
    assert sandbox.num_restarts == restarts


def test_unprivileged_container_asks_for_a_user_namespace() -> None:
    assert "--unshare-user" in container_options(Path(sys.executable), is_privileged=False)
    assert "--unshare-user" not in container_options(Path(sys.executable), is_privileged=True)
