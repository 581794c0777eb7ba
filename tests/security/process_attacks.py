# ruff: noqa: E501 - programs in strings
"""Attacks by way of processes, system calls, sockets, memory, time and the answer."""

from security.attack import Attack, calls, cut, ended, only_reports

MAX_PROCESSES = 20
"""What `environment.sandbox.max_processes` must be for these."""
_SPIN = "for _ in range({n}):\n    if os.fork() == 0:\n        while True: pass\nwhile True: pass"
_FORKS = """
num = 0
for _ in range({n}):
    if os.fork() == 0: time.sleep({seconds}), os._exit(0)
    num += 1
"""
_FRAME = "json.dumps({'status': 'done', 'output': '{\"reward\": 1}', 'log': '', 'wall_s': 0}).encode()"

PROCESSES: dict[str, Attack] = {
    "sockets": Attack(
        must_not="anything of the machine or the network is reached",
        code="""
        tcp, udp, unix = (2, 1), (2, 2), (1, 1)
        targets = [(tcp, ('127.0.0.1', a['tcp'])), (tcp, ('10.0.0.1', 80)), (udp, ('192.0.2.1', 53)), (unix, a['folder'] + '/stream'),
                   ((1, 2), a['folder'] + '/datagram'), (unix, '\\0' + a['mark']), (unix, '/var/run/docker.sock'),
                   ((10, 1), ('::1', a['tcp'])), ((16, 3), (0, 0)), (unix, '/run/systemd/private')]
        def reach(kind, address):
            with socket.socket(*kind) as tried:
                tried.settimeout(0.5)
                if kind == (16, 3): return 0
                tried.connect(address)
                return tried.send(b'x')
        found = [str(t) for t in targets if got(lambda: reach(*t))]
        got(lambda: socket.socket(2, 2).sendto(b'x', ('127.0.0.1', a['udp'])))
        pair = got(lambda: socket.socketpair(1, 2))
        if pair: got(lambda: pair[0].sendto(b'x', a['folder'] + '/datagram')), got(lambda: pair[0].connect(a['folder'] + '/datagram'))
        if pair: got(lambda: pair[0].send(b'x'))
        return found
        """,
    ),
    "secrets in variables": Attack(
        must_not="a variable of the trainer is seen",
        code="""
        texts = [str(dict(os.environ))] + [got(lambda: open(p, errors='replace').read()) or '' for p in glob.glob('/proc/*/environ')]
        return [t for t in texts if 'secret-' in t or 'WANDB' in t]
        """,
    ),
    "see other processes": Attack(
        must_not="processes of others are seen or opened",
        code="""
        pids = [n for n in got(lambda: os.listdir('/proc')) or [] if n.isdigit()]
        if len(pids) > 2: return pids
        around = {1, os.getppid(), a['parent'], a['pid'], *range(1, 30)} - {os.getpid()}
        return [f'{p}/{n}' for p in around for n in ('mem', 'environ', 'fd/0', 'maps', 'cwd', 'root/etc/passwd')
                if got(lambda: open(f'/proc/{p}/{n}', 'rb').read(1))]
        """,
    ),
    "kill everybody": Attack(
        must_not="a signal leaves the job",
        code="""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in (a['pid'], a['parent'], os.getppid(), 1, -1): got(lambda: os.kill(pid, number))
            for pid in (a['pid'], a['parent']): got(lambda: os.killpg(os.getpgid(pid), number))
        """,
    ),
    "stop the parent": Attack(
        must_not="a stopped first process outlives the limit",
        code="for p in (os.getppid(), 1, a['parent'], a['pid']): got(lambda: os.kill(p, signal.SIGSTOP))\ntime.sleep(60)",
        timeout_s=1.0,
    ),
    "trace": Attack(
        must_not="memory of another process is reached",
        code="""
        buffer = ctypes.create_string_buffer(64)
        vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
        pids = (os.getppid(), 1, a['parent'], a['pid'])
        traced = [p for p in pids if libc.ptrace(16, p, 0, 0) == 0 or libc.ptrace(0x4206, p, 0, 0) == 0]
        return traced + [p for p in pids if libc.process_vm_readv(p, vector, 1, vector, 1, 0) > 0]
        """,
    ),
    "privileged calls": Attack(
        must_not="a call that could win privileges works",
        code=calls(
            userns="libc.unshare(0x10000000)",
            mountns="libc.unshare(0x20000)",
            timens="libc.unshare(0x80)",
            clone="libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
            clone3="libc.syscall(435, 0, 0)",
            mount="libc.mount(b'tmpfs', b'.', b'tmpfs', 0, None)",
            umount="libc.umount2(b'/proc', 2)",
            pivot="libc.syscall(155, b'.', b'.')",
            setns="libc.setns(0, 0)",
            io_uring="libc.syscall(425, 8, ctypes.create_string_buffer(120))",
            bpf="libc.syscall(321, 0, ctypes.create_string_buffer(120), 72)",
            keyctl="libc.syscall(250, 0, -3, 1)",
            perf="libc.syscall(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)",
            userfaultfd="libc.syscall(323, 1)",
            memfd="libc.memfd_create(b'x', 0)",
            setuid="libc.setuid(0)",
            setgid="libc.setgid(0)",
            chroot="libc.chroot(b'.')",
            device="libc.mknod(b'disk', 0o60666, 0xFE00)",
            fsopen="libc.syscall(430, b'tmpfs', 0)",
            by_handle="libc.open_by_handle_at(-100, ctypes.create_string_buffer(64), 0)",
            clock="libc.clock_settime(0, ctypes.create_string_buffer(16))",
            day="libc.settimeofday(ctypes.create_string_buffer(16), None)",
            adjust="libc.clock_adjtime(0, (ctypes.c_char * 208)(1))",
            nice="libc.setpriority(0, 0, 19)",
            idle="libc.sched_setscheduler(0, 5, ctypes.create_string_buffer(4))",
            reboot="libc.reboot(0)",
        ),
    ),
    "setuid programs": Attack(
        must_not="a program of root's gives its rights",
        command="cp /bin/bash b; chmod 4755 b; ./b -p -c 'id -u; cat {secret}'; su -c id; mount; unshare -Ur id; true",
    ),
    "raise limits": Attack(
        must_not="a limit is lifted, or set for others",
        code="""
        kinds = [getattr(resource, n) for n in dir(resource) if n.startswith('RLIMIT_')]
        kinds = [k for k in kinds if resource.getrlimit(k)[1] != -1]
        raised = [k for k in kinds if got(lambda: resource.setrlimit(k, (-1, -1)) or 1)]
        return raised + [p for p in (a['pid'], a['parent'], os.getppid()) if got(lambda: resource.prlimit(p, resource.RLIMIT_CPU, (9, 9)))]
        """,
    ),
    "descriptors": Attack(
        must_not="a descriptor of the server is inherited",
        code="""
        found = [(n, stat.S_IFMT(s.st_mode)) for n in range(1024) if (s := got(lambda: os.fstat(n)))]
        return [f for f in found if f[0] > 3]
        """,
    ),
    "forged frames": Attack(
        must_not="an answer of the job's making is taken for the server's",
        code=f"import struct\nframe = {_FRAME}\nfor n in range(256):\n    got(lambda: os.write(n, struct.pack('>I', len(frame)) + frame))"
        "\n    got(lambda: os.write(n, frame + b'\\n'))\nos._exit(0)",
        judge=only_reports,
    ),
    "forged reports": Attack(
        must_not="numbers that are none, or huge or deep JSON, get through",
        code="""
        lines = [b'{"x": NaN}', b'{"x": Infinity}', b'{"x": 1e999}', b'[' * 200000, b'{"a":' * 90000, b'{"x": ' + b'9' * 6000 + b'}', b'\\xff', b'null',
                 b'{"stage": "end"}']
        for line in lines: got(lambda: os.write(3, line + b'\\n'))
        os._exit(0)
        """,
        judge=only_reports,
    ),
    "close everything": Attack(
        must_not="a job without descriptors hangs the server",
        code="os.closerange(0, 1024)\ntime.sleep(60)",
        timeout_s=1.0,
        judge=only_reports,
    ),
    "leave early": Attack(must_not="an early exit looks like an end", code="os._exit(0)", judge=ended("died")),
    "much output": Attack(
        must_not="all of it comes back",
        code="for _ in range(100): os.write(1, b'z' * 50_000), os.write(2, b'z' * 50_000)",
        judge=cut,
    ),
    "much output of a command": Attack(must_not="all of it comes back", command="head -c 5000000 /dev/zero", judge=cut),
    "junk to the first process": Attack(
        must_not="requests for warm programs confuse the first process",
        command="python3 -c \"\nimport os, socket, json, array\ns = socket.socket(fileno=100)\nfor m in (b'', b'x', b'[]', b'[' * 9999, b'{}',"
        " json.dumps({'program': 'pytest', 'arguments': 3, 'folder': 1, 'environment': []}).encode()):\n"
        "    s.sendmsg([m], [(1, 1, array.array('i', [0, 1, 2, 2]))])\n    s.sendmsg([m])\n\"; echo after",
        judge=lambda r: "" if "after" in r.output.get("output", "") else f"the command did not go on: {r}",
    ),
    "busy processes": Attack(
        must_not="a job that takes the CPU from itself passes for starved",
        code=_SPIN.format(n=8),
        timeout_s=0.8,
        judge=ended("timeout"),
    ),
    "twenty harmless processes": Attack(
        must_not="more run than allowed",
        code=_FORKS.format(n=20, seconds=0.5) + f"return num if num > {MAX_PROCESSES} else 0",
    ),
    "sixty processes": Attack(
        must_not="more run than allowed",
        code=_FORKS.format(n=60, seconds=20) + f"time.sleep(1)\nreturn num if num > {MAX_PROCESSES} else 0",
    ),
    "memory of one process": Attack(must_not="3 GB are got", code="return got(lambda: len(bytearray(3 << 30)))"),
    "memory of many processes": Attack(
        must_not="together they hold more than one may",
        code="for _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(400 << 20)\n        x[::4096] = b'y' * len(x[::4096])\n"
        "        time.sleep(60)\ntime.sleep(60)",
        timeout_s=20.0,
        judge=lambda r: "" if "MiB in all processes" in r.log else f"not stopped: {r.status} {r.log[-200:]}",
    ),
    "memory behind a main thread that has ended": Attack(
        must_not="it is not counted",
        code="def hold():\n    x = bytearray(400 << 20)\n    x[::4096] = b'y' * len(x[::4096])\n    time.sleep(60)\n"
        "for _ in range(4):\n    if os.fork() == 0:\n        threading.Thread(target=hold).start()\n        libc.syscall(60, 0)\ntime.sleep(60)",
        timeout_s=20.0,
        judge=lambda r: "" if "MiB in all processes" in r.log else f"not stopped: {r.status} {r.log[-200:]}",
    ),
    "memory of no process": Attack(
        must_not="memory is kept in segments, queues or files without a folder",
        code=calls(
            shm="libc.shmget(0, 1 << 20, 0o1666)", memfd="libc.memfd_create(b'x', 0)", secret="libc.syscall(447, 0)"
        ),
    ),
    "a daemon": Attack(
        must_not="it outlives the job",
        code="if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n        time.sleep(60)\n"
        "    os._exit(0)\nos.wait()",
    ),
    "a daemon of a command": Attack(
        must_not="it outlives the job", command="setsid nohup sleep 60 & (sleep 60 &) & echo x"
    ),
    "a daemon and a time-out": Attack(
        must_not="it outlives the limit",
        code="if os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n    os._exit(0)\ntime.sleep(60)",
        timeout_s=0.7,
        judge=ended("timeout"),
    ),
    "a chain of forks": Attack(
        must_not="it is quicker than who kills it",
        code="if os.fork() == 0:\n    os.setsid()\n    until = time.time() + 20\n    while time.time() < until:\n        if os.fork(): os._exit(0)\n"
        "    os._exit(0)\ntime.sleep(0.3)",
    ),
    "a chain of forks and a closed first process": Attack(
        must_not="it is quicker than the server",
        code="os.write(3, b'x' * 900_000) if os.fork() else None\nos.setsid()\nuntil = time.time() + 20\n"
        "while time.time() < until:\n    if os.fork(): os._exit(0)\nos._exit(0)",
    ),
    "deaf to signals": Attack(
        must_not="a job that ignores signals and sleeps at its end outlives the limit",
        code="import atexit\nfor n in range(1, 65): got(lambda: signal.signal(n, signal.SIG_IGN))\natexit.register(time.sleep, 60)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\nsys.settrace(None)\ntime.sleep(60)",
        timeout_s=0.7,
        judge=ended("timeout"),
    ),
    "a command deaf to signals": Attack(
        must_not="it outlives the limit",
        command="trap '' TERM INT HUP; while :; do sleep 1; done",
        timeout_s=0.7,
        judge=ended("timeout"),
    ),
}
