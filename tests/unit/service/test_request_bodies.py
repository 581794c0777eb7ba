"""SV-01 and SV-04 to SV-08 as far as one request goes: what is refused, where, and that nothing is left of it."""

import json
import sqlite3

import pytest
from service_parts import BODY, TOKEN, FakeBackend, error_of, service, settings, submit

DEEP = "[" * 10_000 + "]" * 10_000
BODIES = {
    "no JSON": (b"steps", 400, "body"),
    "cut off": (b'{"steps": 3', 400, "body"),
    "a list": (b"[1]", 422, "body"),
    "a text": (b'"x"', 422, "body"),
    "null": (b"null", 422, "body"),
    "empty": (b"", 400, "body"),
    "an empty object": (b"{}", 422, "steps"),
    "NaN": (b'{"steps": NaN}', 400, "body"),
    "infinity": (b'{"steps": 3, "lr": -Infinity}', 400, "body"),
    "1e999": (b'{"steps": 1e999}', 400, "body"),
    "a number of 5,000 digits": (b'{"steps": ' + b"9" * 5000 + b"}", 400, "body"),
    "a fraction": (b'{"steps": 3.0}', 422, "steps"),
    "true for a number": (b'{"steps": true}', 422, "steps"),
    "text for a number": (b'{"steps": "3"}', 422, "steps"),
    "a number for true": (b'{"steps": 3, "resume": 1}', 422, "resume"),
    "zero steps": (b'{"steps": 0}', 422, "steps"),
    "too many steps": (b'{"steps": 1' + b"0" * 30 + b"}", 422, "steps"),
    "an unknown key": (b'{"steps": 3, "lr": 0.1}', 422, "lr"),
    "a key twice": (b'{"steps": 3, "steps": 4}', 400, "body"),
    "a key twice, further in": (b'{"steps": 3, "x": {"a": 1, "a": 1}}', 400, "body"),
    "depth 10,000": (b'{"steps": 3, "x": ' + DEEP.encode() + b"}", 400, "body"),
    "depth 40": (b'{"steps": 3, "x": ' + b"[" * 40 + b"]" * 40 + b"}", 400, "body"),
    "no UTF-8": (b'{"steps": 3, "name": "\xff"}', 400, "body"),
    "UTF-16": (json.dumps(BODY).encode("utf-16"), 400, "body"),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(BODY).encode(), 400, "body"),
    "half of a letter": (b'{"steps": 3, "name": "\\ud800"}', 400, "body"),
    "a name with a slash": (b'{"steps": 3, "name": "../x"}', 422, "name"),
    "a hidden name": (b'{"steps": 3, "name": ".service"}', 422, "name"),
    "a name with NUL": (b'{"steps": 3, "name": "a\\u0000"}', 422, "name"),
    "a name with a line end": (b'{"steps": 3, "name": "a\\n"}', 422, "name"),
    "an override that is a number": (b'{"steps": 3, "overrides": [1]}', 422, "overrides.0"),
    "overrides as text": (b'{"steps": 3, "overrides": "a=1"}', 422, "overrides"),
    "an unknown algorithm": (b'{"steps": 3, "algorithm": "ppo"}', 422, "algorithm"),
    "an algorithm that is a path": (b'{"steps": 3, "algorithm": "../model/x"}', 422, "algorithm"),
    "an experiment of another family": (b'{"steps": 3, "experiment": "smoke_cpu"}', 422, "experiment"),
    "resume of nothing": (b'{"steps": 3, "resume": true}', 422, "name"),
    "resume of what is not there": (b'{"steps": 3, "resume": true, "name": "gone"}', 422, "name"),
}
OVERRIDES = {
    "optimizer.lrr=1": "optimizer.lrr",
    "optimizer.lr=abc": "optimizer.lr",
    "optimizer.lr=nan": "optimizer.lr",
    "trainer.tasks_per_step=0": "trainer.tasks_per_step",
    "no equals sign": "overrides.0",
    "trainer.steps=4": "overrides.0",
    "+trainer.steps=4": "overrides.0",
    "++root_dir=/etc": "overrides.0",
    "name=x": "overrides.0",
    "resume=latest": "overrides.0",
    "environment=task_dag": "overrides.0",
    "environment.family=os:system": "overrides.0",
    "cluster.ray_address=evil:6379": "overrides.0",
    "hydra.searchpath=[file:///tmp]": "overrides.0",
    "model.path=${oc.env:HOME}": "overrides.0",
    "optimizer.lr=1e-4,1e-5": "overrides.0",
    "x=" + "[" * 900: "overrides.0",
    "tracking.wandb_project=a\nb": "overrides.0",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    backend = FakeBackend()
    with service(folder, backend) as found:
        yield found
        assert backend.launches == []
    with sqlite3.connect(settings(folder).database) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    assert [path.name for path in (folder / "root").iterdir()] == [".service"]
    assert not (folder / "root" / ".service" / "claims").exists()


@pytest.mark.parametrize("name", BODIES)
def test_bad_body_is_refused_with_its_place(client, name):
    """SV-01: the fixture checks at the end that nothing was written for any of them."""
    body, status, field = BODIES[name]
    found = client.post("/train/jira", content=body, headers={"Content-Type": "application/json"})
    error = error_of(found, status)
    assert error["field"] == field
    assert len(error["message"]) <= 600


@pytest.mark.parametrize("override", OVERRIDES)
def test_bad_override_is_refused_with_its_key(client, override):
    """SV-01: through the trainer's own config, so that nothing is accepted that it would refuse."""
    error = error_of(submit(client, overrides=[override]), 422)
    assert error["field"] == OVERRIDES[override]


def test_body_of_ten_megabytes_is_refused(client):
    """SV-01: said in advance, and sent without saying it."""
    large = json.dumps(BODY | {"name": "x" * 10_000_000}).encode()
    headers = {"Content-Type": "application/json"}
    assert error_of(client.post("/train/jira", content=large, headers=headers), 413)["code"] == "too_large"

    def parts():
        for start in range(0, len(large), 100_000):
            yield large[start : start + 100_000]

    assert error_of(client.post("/train/jira", content=parts(), headers=headers), 413)["code"] == "too_large"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_other_content_types_are_refused(client, kind):
    """SV-01."""
    headers = {} if kind is None else {"Content-Type": kind}
    error_of(client.post("/train/jira", content=json.dumps(BODY).encode(), headers=headers), 415)


@pytest.mark.parametrize(
    "name",
    [
        "nope", "os:system", "gymnasium/os:system", "gymnasium/Pendulum-v1", "..%2f..%2fetc", "jira%00", "x" * 200,
        "skyrl_gym/gsm8k", "jira/",
    ],
)  # fmt: skip
def test_unknown_environment_is_not_found(client, name):
    """SV-07: and no module is imported for a name."""
    error_of(submit(client, name), 404)


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201])
def test_bad_idempotency_key_is_refused(client, key):
    assert error_of(submit(client, key=key), 422)["field"] == "Idempotency-Key"


def test_nothing_is_answered_without_the_token(client):
    """Whether a path, a job or a method exists is not said either."""
    for shown in ("Bearer wrong", f"Basic {TOKEN}", "", f"Bearer {TOKEN}x", "Bearer ä"):
        headers = {"Authorization": shown.encode("latin-1")}
        for method, path in (("GET", "/training"), ("POST", "/train/jira"), ("GET", "/nowhere"), ("PUT", "/training")):
            found = client.request(method, path, headers=headers, json=BODY)
            assert error_of(found, 401)["code"] == "unauthorized"
            assert found.headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/health", headers={"Authorization": ""}).json()["status"] == "ok"


def test_unknown_paths_and_methods_have_the_same_shape(client):
    """SV-07."""
    for path in ("/nowhere", "/training/", "/train", "/train/", "/%2e%2e/etc/passwd"):
        error_of(client.get(path), 404, 405)
    found = client.delete("/training")
    assert error_of(found, 405)["code"] == "method_not_allowed"
    assert found.headers["Allow"]
