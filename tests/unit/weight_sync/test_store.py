"""The store in which processes meet."""

from datetime import timedelta

import psutil
import pytest

from skyrl_nat.weight_sync.store import open_store

WAIT = timedelta(seconds=5)


def test_a_store_listens_on_its_address_alone() -> None:
    holder = open_store("127.0.0.1", 0, 2, WAIT, is_master=True)
    [place] = [c.laddr for c in psutil.Process().net_connections("inet") if c.laddr.port == holder.port and not c.raddr]
    assert place.ip == "127.0.0.1"
    other = open_store("127.0.0.1", holder.port, 2, WAIT, is_master=False)
    other.set("key", "value")
    assert holder.get("key") == b"value"


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"192\.0\.2\.77:0 is no address to listen on"):
        open_store("192.0.2.77", 0, 2, WAIT, is_master=True)
