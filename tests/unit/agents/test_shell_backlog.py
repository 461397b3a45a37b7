"""Of a flood the beginning and the end are kept, and nothing else."""

from __future__ import annotations

from codebutler_worker.agents.shell.output import HEAD_BYTES, TAIL_BYTES, Batch, OutputBacklog


def test_what_fits_comes_out_whole() -> None:
    backlog = OutputBacklog()
    backlog.push(b"one ")
    backlog.push(b"two")
    assert backlog.take() == Batch(b"one two")
    assert backlog.empty
    assert backlog.take() == Batch()


def test_a_flood_keeps_its_beginning_and_its_end() -> None:
    backlog = OutputBacklog()
    for number in range(100_000):
        backlog.push(b"%09d\n" % number)
    batch = backlog.take()
    assert batch.head.startswith(b"000000000\n")
    assert batch.tail.endswith(b"000099999\n")
    assert len(batch.head) + batch.skipped_bytes + len(batch.tail) == 1_000_000
    assert len(batch.head) <= HEAD_BYTES + 10
    assert TAIL_BYTES <= len(batch.tail) <= 2 * TAIL_BYTES


def test_later_only_the_end_is_looked_at_until_it_is_rewound() -> None:
    backlog = OutputBacklog()
    backlog.push(b"x" * HEAD_BYTES)
    backlog.take()
    for _ in range(20):
        backlog.push(b"y" * TAIL_BYTES)
    batch = backlog.take()
    assert len(batch.head) + len(batch.tail) <= 4 * TAIL_BYTES
    assert batch.skipped_bytes > 10 * TAIL_BYTES
    backlog.rewind()
    backlog.push(b"z" * HEAD_BYTES)
    assert len(backlog.take().head) == HEAD_BYTES


def test_one_huge_piece_does_not_come_out_whole() -> None:
    backlog = OutputBacklog()
    backlog.push(b"a" * HEAD_BYTES)
    backlog.push(b"b" * 10 * HEAD_BYTES)
    batch = backlog.take()
    assert len(batch.tail) <= 2 * TAIL_BYTES or batch.skipped_bytes == 0


def test_a_newline_returns_where_the_terminal_does_not_say_so_itself() -> None:
    backlog = OutputBacklog()
    backlog.push(b"one\ntwo\r\n", newline_returns=True)
    backlog.push(b"down\nhere")
    assert backlog.take() == Batch(b"one\r\ntwo\r\ndown\nhere")
