"""Server-sent events: every line once, in order, from where the client was, and an end."""

import threading
import time

import pytest
from service_parts import FakeBackend, error_of, job_of, service, wait_for, write_metrics

from skyrl_nat.service.settings import Limits
from skyrl_nat.strict_json import parse_json


@pytest.fixture
def client(tmp_path):
    with service(tmp_path, FakeBackend(), limits=Limits(max_streams=0)) as found:
        yield found


def events(text):
    """Return name, id and data of each event; comments are left out."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            found.append((fields["event"], fields.get("id"), parse_json(fields["data"])))
    return found


def follow(client, job, last=None):
    headers = {} if last is None else {"Last-Event-ID": last}
    found = client.get(f"/training/{job['id']}/events", headers=headers)
    assert found.headers["Content-Type"].startswith("text/event-stream")
    return events(found.text)


def test_job_is_followed_from_its_lines_to_its_end(tmp_path):
    with service(tmp_path) as client:
        job = job_of(client)
        wait_for(client, job["id"], "running")
        folder = tmp_path / "root" / job["run"]
        write_metrics(folder, {"step": 1, "x": 0.5})

        def work():
            time.sleep(0.7)
            write_metrics(folder, {"step": 2, "x": 1.5}, "no json", {"no": "step"}, {"step": 2, "evaluation": 1})
            # The beginning of a line is no line.
            with (folder / "metrics.jsonl").open("a") as file:
                file.write('{"step": 3, ')
                file.flush()
                time.sleep(0.7)
                file.write('"x": NaN}\n')
            client.post(f"/training/{job['id']}/cancel")

        writer = threading.Thread(target=work)
        writer.start()
        found = follow(client, job)
        writer.join()
        lines = [(number, data) for name, number, data in found if name == "metrics"]
        assert lines == [
            ("1", {"step": 1, "x": 0.5}),
            ("2", {"step": 2, "x": 1.5}),
            ("2.1", {"step": 2, "evaluation": 1}),
            ("3", {"step": 3, "x": None, "not_finite": {"x": "nan"}}),
        ]
        states = [data["state"] for name, _, data in found if name == "state"]
        assert states[0] == "running"
        assert states[-1] == "cancelled"
        assert found[-1][0] == "state"
        for last, expected in (("2", ["2.1", "3"]), ("2.1", ["3"]), ("3", []), ("nonsense", ["1", "2", "2.1", "3"])):
            assert [number for name, number, _ in follow(client, job, last) if name == "metrics"] == expected


def test_more_clients_than_there_are_streams_are_told_so(client):
    job = job_of(client)
    assert error_of(client.get(f"/training/{job['id']}/events"), 503)["code"] == "too_many"
