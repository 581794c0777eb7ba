"""SV-02: files of a job's folder, and nothing else, however their path is written."""

import pytest
from service_parts import error_of, job_of, service

from skyrl_nat.service.paths import inside, inside_file, plain_files

CANARY = "the canary"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A job with files, links that lead out, and neighbours whose names begin alike."""
    folder = tmp_path_factory.mktemp("paths")
    with service(folder) as client:
        job = job_of(client)
        root = folder / "root"
        run = root / job["run"]
        (run / "rollouts").mkdir(parents=True)
        (run / "rollouts" / "a.jsonl").write_text("inside")
        for neighbour in (root / f"{job['run']}-evil", folder / "root-evil"):
            neighbour.mkdir()
            (neighbour / "secret").write_text(CANARY)
        (folder / "secret").write_text(CANARY)
        (run / "etc").symlink_to("/etc")
        (run / "file").symlink_to(folder / "secret")
        (run / "circle").symlink_to(run / "circle")
        (run / "within").symlink_to(run / "rollouts")
        yield client, job, run, folder


ESCAPES = [
    "../secret", "../../secret", "%2e%2e%2f%2e%2e%2fsecret", "..%2f..%2fsecret", "%252e%252e%252fsecret",
    "rollouts/../../{run}-evil/secret", "rollouts%2f..%2f..%2f{run}-evil%2fsecret", "../{run}-evil/secret",
    "/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd", "etc/passwd", "file", "circle", "rollouts", "%2e", "%2e%2e",
    "a.jsonl%00", "rollouts/a.jsonl%00.txt", "%00", "..\\secret", "rollouts/" + "x" * 300, "a/" * 400 + "b",
    "../.service/token", "../.service/jobs.sqlite3", "../jobs.sqlite3",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_path_out_of_the_job_folder_is_refused(place, path):
    """SV-02: also the sibling that a check of prefixes would let through."""
    client, job, run, _ = place
    found = client.get(f"/training/{job['id']}/files/{path.format(run=run.name)}")
    error_of(found, 404, 422)
    assert CANARY not in found.text
    assert "root:" not in found.text


def test_files_inside_are_listed_and_sent(place):
    client, job, _, _ = place
    assert client.get(f"/training/{job['id']}/files").json() == ["rollouts/a.jsonl"]
    for path in ("rollouts/a.jsonl", "within/a.jsonl", "rollouts/../rollouts/a.jsonl"):
        found = client.get(f"/training/{job['id']}/files/{path}")
        assert found.text == "inside"
        assert found.headers["Content-Disposition"].startswith("attachment")


def test_logs_and_metrics_behind_a_link_are_not_read(place):
    """SV-02: what the routes open by themselves."""
    client, job, run, folder = place
    (run / "job.log").symlink_to(folder / "secret")
    (run / "metrics.jsonl").symlink_to("/etc/passwd")
    assert client.get(f"/training/{job['id']}/logs").text == ""
    assert client.get(f"/training/{job['id']}").json()["step"] is None


def test_folder_is_judged_by_what_it_resolves_to(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    (root / "a").write_text("x")
    assert inside(tmp_path / "link", "a") == (root / "a").resolve()
    assert inside(root) is None
    assert inside(root, "..", "root") is None
    assert inside_file(root, "nothing") is None
    assert list(plain_files(root, 0)) == []
    assert list(plain_files(root, 5)) == [root / "a"]
