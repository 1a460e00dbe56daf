"""Memory is given back when much less is held than before, and not while it is in use again and again."""

import asyncio
import math

import pytest

from mcp2026.runtime.protocol.connections import MIB, Connections, Ebb


@pytest.mark.parametrize(
    ("highest", "given_back"),
    [
        pytest.param([500, 0, 0], [1], id="all at once"),
        pytest.param(
            [500, 400, 300, 200, 150, 0], [3, 5], id="little by little: when half has gone, and the rest"
        ),
        pytest.param([500, 0, 500, 0], [1, 3], id="each time"),
        pytest.param([64] * 9, [], id="as much again and again"),
        pytest.param([20, 0], [], id="too little"),
        pytest.param([60, 31, 0], [2], id="in two parts that are too little each"),
    ],
)
def test_it_is_told_when_much_was_freed(highest: list[int], given_back: list[int]) -> None:
    ebb = Ebb()
    assert [index for index, mib in enumerate(highest) if ebb.ebbed(mib * MIB)] == given_back


async def test_it_is_told_though_no_connection_is_left() -> None:
    told = asyncio.Event()
    connections = Connections(asyncio.get_running_loop(), lambda _: None, None, told.set)
    connection = _Connection()
    connections.add(connection)
    connections.unfinished.add(100 * MIB)
    connections.unfinished.add(-100 * MIB)
    connections.remove(connection)
    await asyncio.wait_for(told.wait(), 30)


class _Connection:
    deadline = math.inf

    def timed_out(self) -> None:
        pass

    def drain(self) -> None:
        pass
