"""Which client is given up when there is no room: the slowest, whoever comes."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from xylem.api.door.slow_clients import SlowClient, SlowClients
from xylem.base.errors import Overloaded


class Moving:
    """A client of which a test says how much it has moved."""

    def __init__(self, n_moved: int = 0) -> None:
        self.n_moved = n_moved
        self.is_given_up = False
        self.client = SlowClient(lambda: self.n_moved, self.give_up)

    def give_up(self) -> None:
        self.is_given_up = True


def clients_of(budget: int, *moved: int) -> tuple[SlowClients, list[Moving]]:
    """Clients that began at the same time and have moved so many bytes."""
    clients, moving = SlowClients(budget, "a limit"), [Moving(n) for n in moved]
    clients.waiting = {each.client: 0.0 for each in moving}
    return clients, moving


async def test_the_slowest_is_given_up_and_leaves_its_room() -> None:
    clients, (fast, slow, fair) = clients_of(10, 3000, 0, 2000)
    for each in (fast, slow, fair):
        clients.hold(each.client, 3)
    clients.hold(Moving().client, 4)
    assert [each.is_given_up for each in (fast, slow, fair)] == [False, True, False]
    assert (clients.n_bytes, list(clients.waiting)) == (10, [fast.client, fair.client])
    clients.hold(fast.client, 3)
    assert (fair.is_given_up, clients.n_bytes) == (True, 10)


async def test_the_slowest_is_refused_what_there_is_no_room_for() -> None:
    clients, (slow, fast) = clients_of(10, 0, 1000)
    clients.hold(fast.client, 6)
    with pytest.raises(Overloaded, match=r"at most 10 bytes \(limit a limit\)"):
        clients.hold(slow.client, 5)
    clients.hold(slow.client, 4)
    assert not fast.is_given_up and clients.n_bytes == 10


async def test_what_is_no_longer_waited_for_is_held_and_not_given_up() -> None:
    clients, (whole,) = clients_of(10, 0)
    clients.hold(whole.client, 10)
    del clients.waiting[whole.client]
    assert not clients.give_up_slowest()
    with pytest.raises(Overloaded):
        clients.hold(Moving().client, 1)
    clients.release(whole.client)
    assert clients.n_bytes == 0


@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 50)), max_size=20),
    st.integers(1, 60),
)
def test_no_more_is_held_than_the_budget(steps: list[tuple[int, int]], budget: int) -> None:
    """Each client moves some bytes and is held for some; what is held is that of those left."""

    async def main() -> None:
        clients, left = SlowClients(budget, "a limit"), []
        for n_moved, n_bytes in steps:
            client = Moving(n_moved)
            clients.waiting[client.client] = 0.0
            try:
                clients.hold(client.client, n_bytes)
            except Overloaded:
                clients.release(client.client)
            else:
                left.append(client)
            left = [each for each in left if not each.is_given_up]
            assert clients.n_bytes == sum(each.client.n_held for each in left) <= budget

    asyncio.run(main())
