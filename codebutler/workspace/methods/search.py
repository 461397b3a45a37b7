"""search.messages, as a person searches: words, and the modifiers in:#channel and from:@name."""

from __future__ import annotations

from collections.abc import Iterator

from codebutler.workspace import render
from codebutler.workspace.records import Channel, Json, Message, MethodError
from codebutler.workspace.responses import Call, Method

MOST_PER_PAGE = 100


def messages(call: Call) -> Json:
    """Newest first. Only people search: Slack gives bot tokens no right to."""
    if call.actor.is_bot:
        raise MethodError("not_allowed_token_type")
    query = call.params.needed("query", "no_query")
    found = sorted(_found(call, query.lower().split()), key=lambda pair: pair[1].ts, reverse=True)
    count, number = call.params.number("count", 20, MOST_PER_PAGE), call.params.number("page", 1, 100)
    shown = found[(number - 1) * count : number * count]
    return {
        "query": query,
        "messages": {
            "total": len(found),
            "matches": [_match(call, channel, message) for channel, message in shown],
            "paging": {
                "count": count,
                "total": len(found),
                "page": number,
                "pages": -(-len(found) // count),
            },
        },
    }


def _found(call: Call, words: list[str]) -> Iterator[tuple[Channel, Message]]:
    inside = {word[3:].lstrip("#") for word in words if word.startswith("in:")}
    authors = {word[5:].lstrip("@") for word in words if word.startswith("from:")}
    text = [word for word in words if not word.startswith(("in:", "from:"))]
    names = {user.id: user.name.lower() for user in call.workspace.users.values()}
    for channel in call.workspace.channels.values():
        if (channel.is_hidden and call.actor.id not in channel.members) or (
            inside and channel.name not in inside
        ):
            continue
        for message in channel.messages.values():
            if message.is_tombstone or (authors and names.get(message.user) not in authors):
                continue
            said = _said(message).lower()
            if all(word in said for word in text):
                yield channel, message


def _said(message: Message) -> str:
    """A message's searchable text: its text, its Markdown, its files' names."""
    parts = [message.text, *(str(block.get("text") or "") for block in message.blocks)]
    return "\n".join([*parts, *(str(file.get("name")) for file in message.files)])


def _match(call: Call, channel: Channel, message: Message) -> Json:
    told = render.message(call.workspace, channel, message)
    user = call.workspace.users.get(message.user)
    return {
        **told,
        "iid": f"{channel.id}-{message.ts}",
        "username": user.name if user else "",
        "channel": {"id": channel.id, "name": channel.name, "is_im": channel.is_im},
        "permalink": f"{call.house.url}/archives/{channel.id}/p{message.ts.replace('.', '')}",
    }


METHODS: dict[str, Method] = {"search.messages": messages}
