"""Who gets in: the token's file, the header, the cookie of the page."""

import stat

import pytest
from service_parts import TOKEN, FakeBackend, client_of, error_of, settings

from skyrl_nat.errors import ConfigError
from skyrl_nat.service.access import COOKIE, TOKEN_VARIABLE, read_token
from skyrl_nat.service.app import create_app


@pytest.fixture
def no_variable(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def test_token_is_made_once_for_this_user_alone(tmp_path, no_variable):
    file = tmp_path / "token"
    token, is_made = read_token(file)
    assert is_made
    assert len(token) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_token(file) == (token, False)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o666])
def test_token_that_others_may_read_or_write_is_refused(tmp_path, no_variable, mode):
    file = tmp_path / "token"
    read_token(file)
    file.chmod(mode)
    with pytest.raises(ConfigError, match="this user alone") as caught:
        read_token(file)
    assert file.read_text().strip() not in str(caught.value)


def test_token_behind_a_link_is_refused(tmp_path, no_variable):
    read_token(tmp_path / "real")
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="this user alone"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize("token", ["short", "with blanks in it 0123456", "ä" * 20, "a\nb" * 10])
def test_weak_token_of_the_environment_is_refused_and_not_repeated(tmp_path, monkeypatch, token):
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(ConfigError, match="at least 16") as caught:
        read_token(tmp_path / "token")
    assert token not in str(caught.value)
    assert not (tmp_path / "token").exists()


def test_page_takes_the_token_out_of_the_address_into_a_cookie(tmp_path):
    client = client_of(create_app(settings(tmp_path), FakeBackend()))
    del client.headers["Authorization"]
    assert "/?token=TOKEN" in error_of(client.get("/?token=wrong"), 401)["message"]
    found = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert found.status_code == 303
    assert found.headers["Location"] == "/"
    cookie = found.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/training").status_code == 200


def test_cookie_of_another_page_changes_nothing(tmp_path):
    """A cookie goes along for pages of other ports of this machine; such a page may not submit."""
    client = client_of(create_app(settings(tmp_path), FakeBackend()))
    del client.headers["Authorization"]
    client.cookies.set(COOKIE, TOKEN)
    for origin, status in (("http://testserver:81", 403), ("null", 403), ("http://testserver", 422)):
        found = client.post("/train/jira", json={}, headers={"Origin": origin})
        error_of(found, status)
    assert client.post("/train/jira", json={}, headers={"Cookie": "=;;;;"}).status_code in (401, 422)
