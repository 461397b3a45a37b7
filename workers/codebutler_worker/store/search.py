"""Searches past conversations: a full-text index (SQLite's FTS5) of questions and answers, one row per turn.

The index is updated from the turns at each search, so that nothing else has to maintain it: it adds the turns that
ended since, and removes the deleted ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from codebutler.domain.refs import ConversationRef
from codebutler_worker.store.queries import Rows
from codebutler_worker.store.rows import FoundRow, TurnRow

QUESTION_CHARS = 4_000
ANSWER_CHARS = 20_000
BATCH = 100
"""Turns added in one transaction; later transactions wait for it."""

_FORGET = "DELETE FROM search WHERE rowid NOT IN (SELECT seq FROM turns WHERE finished_at IS NOT NULL)"
_NEW = """
    SELECT seq, coalesce(result, '') AS answer, coalesce(
        (SELECT group_concat(content, char(10)) FROM messages WHERE messages.turn_id = turns.id), ''
    ) AS question
    FROM turns WHERE finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM search WHERE search.rowid = turns.seq)
    ORDER BY seq LIMIT :limit
"""
_ADD = "INSERT INTO search (rowid, question, answer) VALUES (:seq, :question, :answer)"
# The best turn of each conversation; the text of those alone is read. A match in the question counts three
# times.
_FIND = """
    SELECT best.id AS turn_id, search.question, search.answer FROM (
        SELECT id, seq, score FROM (
            SELECT turns.id, turns.seq, score,
                row_number() OVER (PARTITION BY conversation ORDER BY score, turns.seq DESC) AS place
            FROM (
                SELECT rowid AS found, rank AS score FROM search
                WHERE search MATCH :query AND rank MATCH 'bm25(3.0, 1.0)'
            ) JOIN turns ON turns.seq = found WHERE turns.channel_id = :channel
        ) WHERE place = 1 ORDER BY score, seq DESC LIMIT :limit
    ) AS best JOIN search ON search.rowid = best.seq ORDER BY best.score, best.seq DESC
"""


class Search(Rows[TurnRow]):
    """Questions and answers of finished turns."""

    def forget_gone(self) -> None:
        """Remove the rows of deleted turns."""
        self.raw.execute(_FORGET)

    def add_new(self, redact: Callable[[str], str]) -> bool:
        """Add some of the turns that ended since; returns whether there may be more. No secret gets into it."""
        found = self.raw.execute(_NEW, {"limit": BATCH}).fetchall()
        for row in found:
            question, answer = redact(row["question"])[:QUESTION_CHARS], redact(row["answer"])[:ANSWER_CHARS]
            self.raw.execute(_ADD, {"seq": row["seq"], "question": question, "answer": answer})
        return len(found) == BATCH

    def found(self, words: str, channel_id: ConversationRef, limit: int) -> list[FoundRow]:
        """The best turn of each of the channel's conversations with all the words, or longer words that start
        with them."""
        query = " ".join(f'"{word}"*' for word in words_in(words))
        given = {"query": query, "channel": channel_id, "limit": limit}
        rows = self.raw.execute(_FIND, given).fetchall() if query else []
        return [FoundRow(row["turn_id"], row["question"], row["answer"]) for row in rows]


def words_in(said: str) -> list[str]:
    """The words to search for: separated by spaces, without those that are all punctuation."""
    return [word for word in said.replace('"', " ").split() if re.search(r"[^\W_]", word)]
