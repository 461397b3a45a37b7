"""What agents remember: their sessions, changes of ``memory.md`` and the origins of its lines, facts;
and the search for past conversations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlalchemy import select, text

from codebutler.domain.refs import ConversationRef
from codebutler_worker.store import tables
from codebutler_worker.store.mapping import KeyedTable, Repository, given, matching
from codebutler_worker.store.rows import (
    ChangeState,
    ChannelSessionRow,
    ChoiceRow,
    FactRow,
    FoundRow,
    MemoryChangeRow,
    MemoryLineRow,
    MemoryReviewRow,
    SessionRow,
    channel_of,
    race_in,
)

CHANNEL_AGENT = "claude"


_NEWEST = select(tables.memory_changes).order_by(tables.memory_changes.c.seq.desc()).limit(given("limit"))
_OF_SCOPE = matching(tables.facts, "scope").order_by(tables.facts.c.key)
_UNREVIEWED = text("""
    SELECT turns.conversation, max(turns.finished_at) AS ended FROM turns
    LEFT JOIN memory_reviews ON memory_reviews.conversation = turns.conversation
    WHERE turns.started_at >= :since AND turns.state = 'done' AND turns.finished_at IS NOT NULL
        AND turns.finished_at > coalesce(memory_reviews.up_to, '')
    GROUP BY turns.conversation ORDER BY ended
""")


class SessionsTable(Repository):
    """The sessions that agents resume, one per conversation and agent.

    Two tables lie behind it. ``sessions`` is the WhatsApp era's: one Claude session per channel. It still
    stores channel-wide conversations with ``claude``, so that they survive the migration; and it follows the
    newest Claude session of the channel's threads, unless that is in a race, so that switching ``agent.scope`` to
    ``channel`` continues the latest one. Everything else is in ``threads``.
    """

    def get(self, conversation: str, agent: str) -> SessionRow | None:
        """The session this agent has in this conversation, or None."""
        if agent != CHANNEL_AGENT or not conversation.endswith(":"):
            query = matching(tables.threads, "conversation", "agent")
            return self._one(query, SessionRow, conversation=conversation, agent=agent)
        channel = channel_of(conversation)
        query = matching(tables.sessions, "channel_id")
        found = self._one(query, ChannelSessionRow, channel_id=channel)
        if found is None:
            return None
        return SessionRow(
            conversation=conversation,
            channel_id=channel,
            agent=agent,
            session_id=found.session_id,
            updated_at=found.updated_at,
            total_cost_usd=found.total_cost_usd,
        )

    def holding(self, session_id: str) -> SessionRow | None:
        """The conversation that continues the session, or None."""
        return self._one(matching(tables.threads, "session_id"), SessionRow, session_id=session_id)

    def put(self, row: SessionRow) -> None:
        """Keep the session, replacing an earlier one."""
        if row.agent == CHANNEL_AGENT and not race_in(row.conversation):
            self._upsert(
                tables.sessions,
                ChannelSessionRow(row.channel_id, row.session_id, row.updated_at, row.total_cost_usd),
            )
        if row.agent != CHANNEL_AGENT or not row.conversation.endswith(":"):
            self._upsert(tables.threads, row)

    def forget(self, conversation: str) -> None:
        """Drop every agent's session of the conversation: its next message starts a new one."""
        mine = self.get(conversation, CHANNEL_AGENT)
        if mine is not None:
            channel = channel_of(conversation)
            self._delete(tables.sessions, channel_id=channel, session_id=mine.session_id)
        self._delete(tables.threads, conversation=conversation)


class ChoicesTable(Repository):
    """What conversations have chosen for themselves; most have chosen nothing."""

    def get(self, conversation: str) -> ChoiceRow:
        """The conversation's choice; an empty one if it has chosen nothing."""
        found = self._one(matching(tables.choices, "conversation"), ChoiceRow, conversation=conversation)
        return found or ChoiceRow(conversation=conversation)

    def put(self, row: ChoiceRow) -> None:
        """Keep it, in place of an earlier one."""
        self._upsert(tables.choices, row)


class MemoriesTable(KeyedTable[MemoryChangeRow]):
    """Changes are never deleted; there are few."""

    table = tables.memory_changes
    kind = MemoryChangeRow

    def newest(self, limit: int) -> list[MemoryChangeRow]:
        """The newest changes, newest first."""
        return self._all(_NEWEST, MemoryChangeRow, limit=limit)

    def set_state(self, change_id: str, state: ChangeState, changes: str | None = None) -> None:
        """Set a change's state; ``changes`` are the parts of it that were applied, if not all."""
        to = {"state": state} if changes is None else {"state": state, "changes": changes}
        self._update(tables.memory_changes, to, id=change_id)

    def lines(self) -> dict[str, MemoryLineRow]:
        """Where facts come from, by fact."""
        return {row.line: row for row in self._all(matching(tables.memory_lines), MemoryLineRow)}

    def put_line(self, row: MemoryLineRow) -> None:
        """Record where a fact comes from, replacing an earlier origin."""
        self._upsert(tables.memory_lines, row)

    def forget_lines(self, lines: Iterable[str]) -> None:
        """Delete the origins of these facts."""
        for line in lines:
            self._delete(tables.memory_lines, line=line)

    def unreviewed(self, since: str) -> list[tuple[str, str]]:
        """(conversation, end of its last done turn) of conversations whose last done turn is unreviewed, for
        turns that started after ``since``; the oldest end first."""
        found = self._run(_UNREVIEWED, {"since": since})
        return [(str(row[0]), str(row[1])) for row in found]

    def reviewed_up_to(self, conversation: str) -> str:
        """The end of the last reviewed turn; "" if none was."""
        query = matching(tables.memory_reviews, "conversation")
        found = self._one(query, MemoryReviewRow, conversation=conversation)
        return found.up_to if found is not None else ""

    def review(self, conversation: str, up_to: str) -> None:
        """Record that the conversation was reviewed, up to the turn that ended then."""
        self._upsert(tables.memory_reviews, MemoryReviewRow(conversation, up_to))


class FactsTable(Repository):
    """Facts by scope and key."""

    def put(self, row: FactRow) -> None:
        """Keep a fact, replacing an earlier one with its key."""
        self._upsert(tables.facts, row)

    def get(self, scope: str, key: str) -> FactRow | None:
        """The fact of that key."""
        return self._one(matching(tables.facts, "scope", "key"), FactRow, scope=scope, key=key)

    def of(self, scope: str) -> list[FactRow]:
        """All facts of a scope, by key."""
        return self._all(_OF_SCOPE, FactRow, scope=scope)

    def forget(self, scope: str, key: str) -> bool:
        """Drop a fact; False if there was none."""
        return self._delete(tables.facts, scope=scope, key=key) > 0


# Searches past conversations: a full-text index (SQLite's FTS5) of questions and answers, one row per turn.
#
# The index is updated from the turns at each search, so that nothing else has to maintain it: it adds the turns
# that ended since, and removes the deleted ones.

QUESTION_CHARS = 4_000
ANSWER_CHARS = 20_000
BATCH = 100
"""Turns added in one transaction; later transactions wait for it."""

_FORGET = text("DELETE FROM search WHERE rowid NOT IN (SELECT seq FROM turns WHERE finished_at IS NOT NULL)")
_NEW = text("""
    SELECT seq, coalesce(result, '') AS answer, coalesce(
        (SELECT group_concat(content, char(10)) FROM messages WHERE messages.turn_id = turns.id), ''
    ) AS question
    FROM turns WHERE finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM search WHERE search.rowid = turns.seq)
    ORDER BY seq LIMIT :limit
""")
_ADD = text("INSERT INTO search (rowid, question, answer) VALUES (:seq, :question, :answer)")
# The best turn of each conversation; the text of those alone is read. A match in the question counts three
# times.
_FIND = text("""
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
""")


class SearchTable(Repository):
    """Questions and answers of finished turns."""

    def forget_gone(self) -> None:
        """Remove the rows of deleted turns."""
        self._run(_FORGET)

    def add_new(self, redact: Callable[[str], str]) -> bool:
        """Add some of the turns that ended since; returns whether there may be more. No secret gets into it."""
        found = self._run(_NEW, {"limit": BATCH}).fetchall()
        for row in found:
            question, answer = redact(row["question"])[:QUESTION_CHARS], redact(row["answer"])[:ANSWER_CHARS]
            self._run(_ADD, {"seq": row["seq"], "question": question, "answer": answer})
        return len(found) == BATCH

    def find(self, words: str, channel_id: ConversationRef, limit: int) -> list[FoundRow]:
        """The best turn of each of the channel's conversations with all the words, or longer words that start
        with them."""
        query = " ".join(f'"{word}"*' for word in words_in(words))
        given = {"query": query, "channel": channel_id, "limit": limit}
        rows = self._run(_FIND, given).fetchall() if query else []
        return [FoundRow(row["turn_id"], row["question"], row["answer"]) for row in rows]


def words_in(said: str) -> list[str]:
    """The words to search for: separated by spaces, without those that are all punctuation."""
    return [word for word in said.replace('"', " ").split() if re.search(r"[^\W_]", word)]
