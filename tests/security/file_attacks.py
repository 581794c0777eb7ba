# ruff: noqa: E501 - programs in strings
"""Attacks by way of the file system."""

from security.attack import Attack, files

_FILL = """
total = 0
def fill():
    global total
    for i in range(12):
        with open(f'{folder}/{i}', 'wb') as file:
            for _ in range(50): total += file.write(b'x' * (1 << 20))
"""
FILES: dict[str, Attack] = {
    "read host files": Attack(
        must_not="a file of the machine is read",
        code="""
        paths = [a['secret'], a['source'], '/etc/passwd', '/etc/shadow', '/root/.netrc', os.path.expanduser('~/.netrc')]
        paths += ['/proc/1/environ', f"/proc/{a['parent']}/environ", '/var/run/docker.sock', '/dev/kmsg', '/dev/vda']
        return [p for p in paths if got(lambda: open(p, 'rb').read(10))] + (got(lambda: os.listdir(a['folder'])) or [])
        """,
    ),
    "links to host files": Attack(
        must_not="a link shows what it points at",
        code="""
        got(lambda: os.symlink(a['secret'], 'soft')), got(lambda: os.link(a['secret'], 'hard'))
        got(lambda: os.symlink(a['folder'], 'folder'))
        return [p for p in ('soft', 'hard', 'folder/secret.txt') if got(lambda: open(p).read())]
        """,
    ),
    "links when collected": Attack(
        must_not="collection follows a link",
        command="ln -s {secret} soft; ln {secret} hard; ln -s {folder} folder; ln -s / top; mkdir d; ln -s .. d/up; echo ok",
        judge=files(),
    ),
    "odd files when collected": Attack(
        must_not="collection blocks, or takes what is no small text",
        command="mkfifo f; mknod n c 1 3; truncate -s 60M sparse; head -c 900000 /dev/zero > big; printf '\\377\\376' > bin;"
        "for i in $(seq 200); do echo x > many$i; done; python -c 'import socket; socket.socketpair()'; echo ok",
        judge=lambda r: (
            files("f", *(f"many{i}" for i in range(201)))(r) or ("" if "files" in r.output else "no answer")
        ),
    ),
    "write while collected": Attack(
        must_not="a file changes after the command has ended",
        command="(setsid sh -c 'while :; do date > f; cat f f f > g; done' &) ; sleep 0.3; exit 0",
        judge=files("f", "g"),
    ),
    "write outside": Attack(
        must_not="anything outside the job's folder changes",
        code="""
        folders = [a['folder'], '/', '/usr', '/etc', sys.prefix, sys.base_prefix, os.path.dirname(a['source']), '/var/tmp']
        folders += [os.path.dirname(m.__file__) for m in (json, sys.modules['forked_worker'])]
        for p in ('/tmp', '/dev/shm'): got(lambda: open(f"{p}/{a['mark']}", 'w').write('x'))
        return [p for p in folders if got(lambda: open(f"{p}/{a['mark']}", 'w').write('x'))]
        """,
    ),
    "change attributes": Attack(
        must_not="mode, owner or time of a file of the machine changes",
        code="""
        for p in (a['secret'], a['folder'], sys.executable, os.path.dirname(a['folder'])):
            got(lambda: os.chmod(p, 0o700)), got(lambda: os.utime(p, (1, 1))), got(lambda: os.chown(p, 1, 1))
            got(lambda: os.setxattr(p, 'user.x', b'1')), got(lambda: os.truncate(p, 0)), got(lambda: os.rename(p, 'x'))
            got(lambda: os.fchmod(os.open(p, os.O_RDONLY), 0o700)), got(lambda: os.unlink(p))
        """,
    ),
    "fill the disk": Attack(
        must_not="more than 256 MB are written to one place",
        code="import tempfile\nfor folder in ('.', '/dev/shm', '/tmp', tempfile.gettempdir()):\n    space = {'folder': folder}\n"
        f"    with contextlib.suppress(OSError): exec({_FILL!r} + 'fill()', space)\n"
        "    if space['total'] > 300 << 20: return folder, space['total']\n"
        "    for i in range(12): got(lambda: os.unlink(f'{folder}/{i}'))",
        timeout_s=12.0,
    ),
    "fill the disk with deleted files": Attack(
        must_not="files without a name escape the limit",
        code="kept = []\nfor i in range(40):\n    file = open('x', 'wb')\n    os.unlink('x')\n    kept.append(file)\n"
        "    for _ in range(16): file.write(b'x' * (1 << 20)), file.flush()\n    time.sleep(0.05)\nreturn len(kept)",
        timeout_s=12.0,
    ),
    "hide from the count": Attack(
        must_not="a process that keeps deleted files cannot be looked at",
        code="""
        fd = os.open('b', os.O_WRONLY | os.O_CREAT, 0o111)
        os.write(fd, open('/bin/sleep', 'rb').read()), os.close(fd)
        libc.prctl(4, 0, 0, 0, 0)
        kept = []
        for i in range(40):
            kept.append(open('x', 'wb'))
            os.unlink('x')
            for _ in range(16): kept[-1].write(b'x' * (1 << 20)), kept[-1].flush()
            if i % 10 == 0 and os.fork() == 0:
                for file in kept: os.set_inheritable(file.fileno(), True)
                got(lambda: os.execv('b', ['sleep', '30']))
                os._exit(0)
            time.sleep(0.05)
        return len(kept)
        """,
        timeout_s=12.0,
    ),
    "hide files from the count": Attack(
        must_not="a folder that cannot be listed, or a deep one, holds more than allowed",
        code="os.mkdir('h', 0o300)\nfor i in range(40):\n    with open(f'h/{i}', 'wb') as file:\n"
        "        for _ in range(16): file.write(b'x' * (1 << 20))\n    time.sleep(0.05)\nreturn True",
        timeout_s=12.0,
    ),
    "a very deep folder": Attack(
        must_not="cleaning up fails",
        code="for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nos.mkdir('closed', 0)",
    ),
    "left for the next job": Attack(
        must_not="a job finds what an earlier one left",
        code="""
        for p in ('.', '~', '~/.local/lib/python3.11/site-packages', sys.prefix + '/lib/python3.11/site-packages', '/tmp',
                  '/dev/shm', '/var/tmp', os.environ['TMPDIR']):
            p = os.path.expanduser(p)
            for name in ('sitecustomize.py', 'usercustomize.py', 'x.pth', a['mark']):
                got(lambda: os.makedirs(p, exist_ok=True)), got(lambda: open(f'{p}/{name}', 'w').write(f"#{a['mark']}\\nimport os"))
        json.LEFT = sys.modules['forked_worker'].LEFT = os.environ['LEFT'] = a['mark']
        libc.shmget(1234, 4096, 0o1666), got(lambda: libc.mq_open(b'/mark', 0o102, 0o666, None))
        """,
        look="""
        places = ('.', '~', '/tmp', '/dev/shm', '/var/tmp', os.environ['TMPDIR'], '~/.local/lib/python3.11/site-packages')
        left = [n for p in places for n in got(lambda: os.listdir(os.path.expanduser(p))) or []]
        bad = [n for n in left if n in (a['mark'], 'x.pth') or 'customize' in n]
        return bad or hasattr(json, 'LEFT') or 'LEFT' in os.environ or libc.shmget(1234, 0, 0) >= 0
        """,
    ),
}
