"""Schemathesis reads the service's OpenAPI and tries to find answers that it does not describe."""

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import Config, GenerationMode
from service_parts import TOKEN, FakeBackend, job_of, service

from skyrl_nat.service.runner.backend import Capacity

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
EXAMPLES = hypothesis.settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NOT_IN_THE_SCHEMA = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 404, 409, 422, 429, 503]
"""
"""What a config allows is not for a schema to say: an override that it refuses is answered with 422."""


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    backend = FakeBackend(Capacity(cpus=10_000, gpus=0))
    with service(folder, backend, max_running=10_000) as client:
        job = job_of(client)
        client.post(f"/training/{job['id']}/cancel")
        app = without_lifespan(client.app)
        yield schemathesis.openapi.from_asgi(
            "/openapi.json", app, headers=HEADERS, config=Config.from_str(NOT_IN_THE_SCHEMA)
        )


def without_lifespan(app):
    """Return an app that is running already, for a client that would start and end it around its requests."""

    async def requests_only(scope, receive, send):
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
        else:
            await app(scope, receive, send)

    return requests_only


def play(operation, mode):
    """Try an operation with requests that fit its schema, or do not."""

    @EXAMPLES
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        if case.path.endswith("/events") and case.method == "GET" and mode is GenerationMode.POSITIVE:
            # A job that is not over is followed for ever.
            case.path_parameters = {"job_id": "job-0000000000000000"}
        case.call_and_validate(headers=HEADERS)

    check()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_as_described(schema, mode):
    """SV-01 and SV-07: no 5xx, no status, content type or body that OpenAPI does not have, no bad request accepted."""
    found, num_played = [], 0
    for result in schema.get_all_operations():
        operation = result.ok()
        try:
            play(operation, mode)
            num_played += 1
        except hypothesis.errors.Unsatisfiable:
            # It takes nothing that could be wrong.
            assert mode is GenerationMode.NEGATIVE
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - all are shown together
            found.append(f"{operation.label}: {error}")
    assert not found, "\n".join(found)
    assert num_played >= 8
