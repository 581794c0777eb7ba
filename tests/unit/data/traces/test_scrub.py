"""Secrets never reach the disk, and ordinary code is left as it is. The secrets here are put together at run time."""

import sysconfig
import time
from collections import Counter
from pathlib import Path

import pytest

from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.scrub import Scrubber

ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9j"
AWS = "AKIA" + "ABCDEFGH12345678"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join([ALNUM] * 3) + "\nab==\n-----END RSA PRIVATE KEY-----"
PGP = (
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: Some 1.0\n\n"
    + ALNUM
    + "\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
)
ENCRYPTED = PEM.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\n", 1)
SHAPES = {
    "anthropic-key": "sk-ant-api03-" + ALNUM,
    "openrouter-key": "sk-or-v1-" + "0a" * 32,
    "openai-key": "sk-proj-" + ALNUM + "_-x",
    "nvidia-key": "nvapi-" + ALNUM,
    "github-token": "ghp_" + ALNUM[:36],
    "gitlab-token": "glpat-" + ALNUM[:20],
    "huggingface-token": "hf_" + ALNUM[:34],
    "google-key": "AIza" + ALNUM[:35],
    "google-token": "ya29." + ALNUM[:40],
    "slack-token": "xoxb-" + "123456789012-" + ALNUM[:24],
    "stripe-key": "sk_live_" + ALNUM[:24],
    "pypi-token": "pypi-AgEIcHlwaS5vcmc" + ALNUM,
    "aws-access-key": AWS,
    "jwt": f"eyJ{ALNUM[:20]}.eyJ{ALNUM[:30]}.{ALNUM[:43]}",
}
PLACES = ["{}", "key={}", '{{"key": "{}"}}', "`{}`", "curl -H 'X: {}' x", "({}).", "a\\n{}\\nb", "https://h/?k={}&b=1"]
ORDINARY = [
    "sk-learn-like-class-names-with-dashes-are-long",
    "class='sk-toggleable__label sk-toggleable__label-arrow'",
    "disk-0123456789abcdef0123456789abcdef is a task-0123456789abcdef0123456789abcdef",
    'API_KEY = os.environ["API_KEY"]',
    'api_key=os.getenv("OPENAI_API_KEY")',
    "export OPENAI_API_KEY=${OPENAI_API_KEY}",
    "PASSWORD=$(cat /run/secret1)",
    "OPENAI_API_KEY=<your key 1>",
    'OPENAI_API_KEY="your-key-number-1"[0]',
    "MAX_TOKENS=4096 SORT_KEY=created_at CACHE_KEY='user:1:profile:list'",
    "TOKEN = 'word' ; SECRET = settings.secret_v2.value",
    'connect(f"postgres://{user}:{password}@{host}:5432/db")',
    "http://localhost:8080/a@b and git@github.com:a/b.git and s3://bucket/key:1@2",
    "if '-----BEGIN PRIVATE KEY-----' in text and '-----END PRIVATE KEY-----' in text:",
    "-----BEGIN PRIVATE KEY----- is the first line of a file that holds such a key, and so on and so forth",
    "-----BEGIN CERTIFICATE-----\n" + ALNUM + "\n-----END CERTIFICATE-----",
    "the bearer of-this-letter-of-introduction is Bearer authentication-scheme-name",
    "ghp_short hf_hub_download_a_file_from_the_hub_by_name AKIAshort eyJhbGciOi.x.y",
    "git commit 0123456789abcdef0123456789abcdef01234567, sha256:" + "0a" * 32,
    "x = a @ b.T; @app.route('/'); me@example.org",
]


def scrub(text: str, **options: bool) -> tuple[str, Counter[str]]:
    return Scrubber({}, **options).text(text)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("tag", SHAPES)
def test_a_key_of_a_known_shape_becomes_its_tag_wherever_it_stands(tag: str, place: str):
    assert scrub(place.format(SHAPES[tag])) == (place.format(f"[secret:{tag}]"), {tag: 1})


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"Authorization: Bearer {ALNUM[:30]}==", "Authorization: Bearer [secret:bearer-token]"),
        (f'"authorization": "bearer  {ALNUM[:16]}"', '"authorization": "bearer  [secret:bearer-token]"'),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [secret:basic-auth]"),
        ("postgres://me:hunter2@db:5432/x", "postgres://me:[secret:url-password]@db:5432/x"),
        ("redis://:p%40ss@h/0 http://u:a@b@h/", "redis://:[secret:url-password]@h/0 http://u:[secret:url-password]@h/"),
        (f"aws_secret_access_key = {ALNUM[:40]}\n", "aws_secret_access_key = [secret:aws-secret-key]\n"),
        (f"AWS_SECRET_ACCESS_KEY='{ALNUM[:38]}/+'", "AWS_SECRET_ACCESS_KEY='[secret:aws-secret-key]'"),
        ("export WANDB_API_KEY=0123456789abcdef0123", "export WANDB_API_KEY=[secret:assigned]"),
        ('DB_PASSWORD = "correct-horse"', 'DB_PASSWORD = "[secret:assigned]"'),
        ("DB_PASSWORD=hunter2\nX=1", "DB_PASSWORD=[secret:assigned]\nX=1"),
        ('{"HF_TOKEN": "abcdef-123456"}', '{"HF_TOKEN": "[secret:assigned]"}'),
        (f"a\n{PEM}\nb", "a\n[secret:private-key]\nb"),
        (PEM.replace("\n", "\\n"), "[secret:private-key]"),
        (ENCRYPTED, "[secret:private-key]"),
        (PGP, "[secret:private-key]"),
        (PEM[:120], "[secret:private-key]"),
    ],
)
def test_a_secret_that_its_surroundings_betray_is_taken_out_and_they_stay(text: str, clean: str):
    found, counts = scrub(text)
    assert found == clean
    assert sum(counts.values()) == clean.count("[secret:")


def test_scrubbing_twice_changes_nothing_more():
    text = " ".join([*SHAPES.values(), f"Bearer {ALNUM}", "http://u:p1@h", "A_PASSWORD=hunter22", PEM])
    once, counts = scrub(text)
    assert sum(counts.values()) == len(SHAPES) + 4
    assert scrub(once) == (once, {})


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str):
    assert scrub(text) == (text, {})


def test_the_code_of_this_package_and_of_the_standard_library_stays_as_it_is():
    library = Path(sysconfig.get_paths()["stdlib"])
    folders = [Path(__file__).parents[4] / "skyrl_nat", *(library / name for name in ("asyncio", "email", "http"))]
    files = [*library.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    scrubber = Scrubber({})
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    assert sum(map(len, texts.values())) > 5_000_000
    assert [(path, found) for path, text in texts.items() if (found := scrubber.text(text)[1])] == []


LONG = {
    "one word": "a",
    "spaces": " ",
    "begins of keys": "sk-",
    "begins of private keys": "-----BEGIN PRIVATE KEY-----\n",
    "a key without an end": "-----BEGIN PRIVATE KEY-----\n" + ALNUM + "\n",
    "urls": "://",
    "urls with colons": "://:",
    "colons": "a:b",
    "at signs": "a@",
    "dots": "a.",
    "names": "A_",
    "names of secrets": "TOKEN_",
    "assignments": "TOKEN=",
    "bearers": "bearer ",
    "tokens": "eyJaaaaaaaaaaaaa.",
    "dashes": "-",
    "slashes": "/",
    "digits": "AKIA1",
    "line ends": "\\n",
}


@pytest.mark.parametrize("name", LONG)
def test_time_grows_with_the_length_of_the_text_and_no_faster(name: str):
    scrubber = Scrubber({}, has_emails=True)

    def seconds(num_chars: int) -> float:
        text = (LONG[name] * num_chars)[:num_chars]
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            scrubber.text(text)
            best = min(best, time.perf_counter() - started)
        return best

    # 8 times the text: 8 times the time where it is linear, 64 times where it is quadratic.
    assert seconds(400_000) < 24 * seconds(50_000) + 0.05


def test_values_of_the_environment_whose_names_look_secret_are_known():
    environment = {
        "WANDB_API_KEY": "zq9-private-1",
        "MY_TOKEN": "zq9-private-1-longer",
        "TOKENIZERS_PARALLELISM": "false-or-true-1",
        "SHORT_KEY": "abc1",
        "DEV_PASSWORD": "password",
        "SSH_KEY": "/home/me/.ssh/id_1",
        "HOME": "somewhere-private-1",
    }
    text = "zq9-private-1 zq9-private-1-longer abc1 password /home/me/.ssh/id_1 somewhere-private-1 false-or-true-1"
    clean, counts = Scrubber(environment).text(text)
    assert clean == (
        "[secret:environment] [secret:environment] abc1 password /home/me/.ssh/id_1 somewhere-private-1 false-or-true-1"
    )
    assert counts == {"environment": 2}


def test_the_own_environment_is_known_without_being_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "qwertz-4711-private")
    assert Scrubber().text("qwertz-4711-private") == ("[secret:environment]", {"environment": 1})


def test_addresses_are_taken_out_where_that_is_asked_for():
    text = "write to Jo.Doe+x@mail.example.org, not a@b.T or x@app.route('/')"
    assert scrub(text) == (text, {})
    clean = text.replace("Jo.Doe+x@mail.example.org", "[secret:email]")
    assert scrub(text, has_emails=True) == (clean, {"email": 1})


def test_every_text_of_a_trace_is_scrubbed_and_the_rest_stays():
    key = SHAPES["openai-key"]
    step = TraceStep(
        kind=StepKind.tool,
        role="tool",
        tool="call",
        text=f"used {key}",
        arguments={"headers": [{"auth": f"Bearer {key}"}], "api_key": "opaque-value-1", "n": 3, key: None},
        seconds=1.0,
    )
    trace = Trace(
        trace_id="t",
        source="hook",
        request=key,
        steps=(step,),
        files={".env": f"OPENAI_API_KEY={key}\nDEBUG=1\n"},
        labels={"label": True},
        metadata={"password": "hunter2hunter2", "token": "a word", "secret": "changeme", "cost": 0.5},
    )
    clean, counts = Scrubber({}).trace(trace)
    tag = "[secret:openai-key]"
    assert counts == {"openai-key": 5, "assigned": 2}
    assert clean.request == tag
    assert clean.steps[0].text == f"used {tag}"
    assert clean.steps[0].arguments == {
        "headers": [{"auth": f"Bearer {tag}"}],
        "api_key": "[secret:assigned]",
        "n": 3,
        tag: None,
    }
    assert clean.files == {".env": f"OPENAI_API_KEY={tag}\nDEBUG=1\n"}
    assert clean.labels == {"label": True}
    assert clean.metadata == {"password": "[secret:assigned]", "token": "a word", "secret": "changeme", "cost": 0.5}
    assert (clean.trace_id, clean.steps[0].seconds) == ("t", 1.0)
