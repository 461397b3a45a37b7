"""The Bot API's methods, as far as a bot like ours calls them: what is done, and what is refused in which words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.telegram.state import Chat, Refused, Telegram

MAX_CHARS = 4096
MAX_ENTITIES = 100
MAX_BYTES = 50 * 2**20
_REACTIONS = (
    "❤ 👍 👎 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 "
    "🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 "
    "🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ "
    "💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡 "
)
REACTIONS = frozenset(_REACTIONS.split())
STYLES = frozenset({"danger", "success", "primary"})
WHOLE = frozenset({"code", "pre"})


def checked_text(given: Mapping[str, Any], name: str, most: int) -> tuple[str, list[dict[str, Any]]]:
    """The text as Telegram keeps it, and the entities that it keeps."""
    text = str(given.get(name, ""))
    entities = [dict(each) for each in given.get("entities" if name == "text" else "caption_entities") or ()]
    units = len(text.encode("utf-16-le")) // 2
    for each in entities:
        if each["offset"] < 0 or each["length"] <= 0 or each["offset"] + each["length"] > units:
            raise Refused("Bad Request: entity beyond the end of the text")
        if each["type"] == "text_link" and not re.fullmatch(
            r"https?://[^/\s?#]+\.[^/\s?#]+([/?#]\S*)?", each["url"]
        ):
            raise Refused(f"Bad Request: Entity URL '{each['url']}' is invalid")
    check_nesting(entities)
    if name == "text" and not text.strip():
        raise Refused("Bad Request: message text is empty")
    if len(text.strip()) > most:
        raise Refused("Bad Request: message is too long")
    return text.rstrip(), entities[:MAX_ENTITIES]


def check_nesting(entities: list[dict[str, Any]]) -> None:
    """Entities contain each other or are apart, and nothing is in code: stricter than Telegram, which mends it."""
    for at, one in enumerate(entities):
        for other in entities[at + 1 :]:
            first, last = sorted((one, other), key=lambda each: (each["offset"], -each["length"]))
            if last["offset"] >= first["offset"] + first["length"]:
                continue
            if last["offset"] + last["length"] > first["offset"] + first["length"]:
                raise Refused("Bad Request: entities overlap")
            if {one["type"], other["type"]} & WHOLE and "blockquote" not in (one["type"], other["type"]):
                raise Refused("Bad Request: an entity in code")


def checked_markup(markup: Any) -> Any:
    rows = (markup or {}).get("inline_keyboard", [])
    if sum(map(len, rows)) > 100 or any(not 1 <= len(row) <= 8 for row in rows):
        raise Refused("Bad Request: reply markup is too long")
    for key in (key for row in rows for key in row):
        if not 1 <= len(key["callback_data"].encode()) <= 64:
            raise Refused("Bad Request: BUTTON_DATA_INVALID")
        if not key["text"].strip() or key.get("style", "primary") not in STYLES:
            raise Refused("Bad Request: can't parse inline keyboard button")
    return markup


NO_GIFTS = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)
RIGHTS = (
    *("can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats"),
    *("can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users"),
    *("can_post_stories", "can_edit_stories", "can_delete_stories"),
)
"""Of an administrator: a client reads each of them."""


class Methods:
    def __init__(self, telegram: Telegram) -> None:
        self._telegram = telegram

    def find(self, name: str) -> Callable[[Mapping[str, Any]], Any] | None:
        found: Callable[[Mapping[str, Any]], Any] | None = getattr(self, f"do_{name}", None)
        return found

    def do_getMe(self, _given: Mapping[str, Any]) -> Any:  # noqa: N802 - Telegram's name
        return {**self._telegram.me, "can_join_groups": True, "can_read_all_group_messages": False}

    def do_getWebhookInfo(self, _given: Mapping[str, Any]) -> Any:  # noqa: N802
        waiting = len(self._telegram.waiting())
        return {
            "url": self._telegram.webhook,
            "has_custom_certificate": False,
            "pending_update_count": waiting,
        }

    def do_deleteWebhook(self, _given: Mapping[str, Any]) -> Any:  # noqa: N802
        self._telegram.webhook = ""
        return True

    def do_setMyCommands(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        commands = given["commands"]
        if len(commands) > 100 or any(
            not re.fullmatch("[a-z0-9_]{1,32}", each["command"]) or not 1 <= len(each["description"]) <= 256
            for each in commands
        ):
            raise Refused("Bad Request: BOT_COMMAND_INVALID")
        self._telegram.commands = list(commands)
        return True

    def do_getChat(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        known = self._telegram.chat(given.get("chat_id")).told()
        return {**known, "accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": NO_GIFTS}

    def do_getChatMember(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        self._telegram.chat(given.get("chat_id"))
        return {
            "status": "administrator",
            "user": self._telegram.me,
            **dict.fromkeys(RIGHTS, False),
            "can_manage_topics": True,
        }

    def do_sendMessage(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        text, entities = checked_text(given, "text", MAX_CHARS)
        return self._sent(chat, given, {"text": text, **({"entities": entities} if entities else {})})

    def do_sendDocument(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        name, content = given["document"]
        if len(content) > MAX_BYTES:
            raise Refused("Request Entity Too Large", 413)
        caption, _ = checked_text(given, "caption", 1024)
        number = f"out{len(self._telegram.files)}"
        document = {
            "file_id": number,
            "file_unique_id": number,
            "file_name": name,
            "file_size": len(content),
        }
        self._telegram.files[document["file_id"]] = (f"documents/{name}", content)
        return self._sent(chat, given, {"document": document, **({"caption": caption} if caption else {})})

    def do_editMessageText(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        message = self._own(given, "edit")
        text, entities = checked_text(given, "text", MAX_CHARS)
        return self._changed(message, {"text": text, "entities": entities}, given)

    def do_editMessageReplyMarkup(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        return self._changed(self._own(given, "edit"), {}, given)

    def do_leaveChat(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        self._telegram.chat(given["chat_id"]).is_closed = "Forbidden: bot is not a member of the chat"
        return True

    def do_deleteMessage(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        message = self._own(given, "delete")
        del self._telegram.chat(given["chat_id"]).messages[message["message_id"]]
        return True

    def do_pinChatMessage(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        if given.get("message_id") not in chat.messages:
            raise Refused("Bad Request: message to pin not found")
        chat.pinned = given["message_id"]
        return True

    def do_setMessageReaction(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        wanted = [str(each["emoji"]) for each in given.get("reaction") or ()]
        if given.get("message_id") not in chat.messages:
            raise Refused("Bad Request: message to react not found")
        allowed = REACTIONS if chat.allowed_reactions is None else chat.allowed_reactions
        if len(wanted) > 1 or any(each not in allowed for each in wanted):
            raise Refused("Bad Request: REACTION_INVALID")
        chat.reactions[given["message_id"]] = wanted
        return True

    def do_answerCallbackQuery(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        query = str(given.get("callback_query_id"))
        if self._telegram.queries.pop(query, None) is None:
            raise Refused("Bad Request: query is too old and response timeout expired or query ID is invalid")
        if len(given.get("text", "")) > 200:
            raise Refused("Bad Request: MESSAGE_TOO_LONG")
        self._telegram.answers[query] = given.get("text", "")
        return True

    def do_sendChatAction(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        chat.actions.append((str(given["action"]), given.get("message_thread_id", 0)))
        return True

    def do_createForumTopic(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        chat = self._telegram.chat(given.get("chat_id"))
        if not chat.is_forum:
            raise Refused("Bad Request: the chat is not a forum")
        return {
            "message_thread_id": self.open_topic(chat, str(given["name"]), self._telegram.me),
            "name": given["name"],
            "icon_color": 7322096,
        }

    def do_getFile(self, given: Mapping[str, Any]) -> Any:  # noqa: N802
        found = self._telegram.files.get(str(given.get("file_id")))
        if found is None:
            raise Refused("Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(found[1]) > 20 * 2**20:
            raise Refused("Bad Request: file is too big")
        return {
            "file_id": given["file_id"],
            "file_unique_id": given["file_id"],
            "file_size": len(found[1]),
            "file_path": found[0],
        }

    def open_topic(self, chat: Chat, name: str, by: Mapping[str, Any]) -> int:
        """The number of a topic is that of the message that tells of it."""
        made = self._telegram.add(
            chat, {"from": dict(by), "forum_topic_created": {"name": name, "icon_color": 7322096}}
        )
        number: int = made["message_id"]
        chat.messages[number].update(message_thread_id=number, is_topic_message=True)
        chat.topics[number] = name
        return number

    def _sent(self, chat: Chat, given: Mapping[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        where: dict[str, Any] = {}
        if topic := given.get("message_thread_id"):
            if topic not in chat.topics:
                raise Refused("Bad Request: message thread not found")
            where = {"message_thread_id": topic, "is_topic_message": True}
        answered = given.get("reply_parameters") or {}
        if answered:
            found = chat.messages.get(answered["message_id"])
            if found is None and not answered.get("allow_sending_without_reply"):
                raise Refused("Bad Request: message to be replied not found")
            where |= {"reply_to_message": _bare(found)} if found else {}
        markup = checked_markup(given.get("reply_markup"))
        shown = {"reply_markup": markup} if markup and "inline_keyboard" in markup else {}
        message = self._telegram.add(chat, {"from": self._telegram.me, **where, **content, **shown})
        if markup and "force_reply" in markup:
            message["_forced"] = markup
        message["_silent"] = bool(given.get("disable_notification"))
        return message

    def _own(self, given: Mapping[str, Any], what: str) -> dict[str, Any]:
        message = self._telegram.chat(given.get("chat_id")).messages.get(given.get("message_id", 0))
        if message is None:
            raise Refused(f"Bad Request: message to {what} not found")
        if message.get("from", {}).get("id") != self._telegram.me["id"]:
            raise Refused(f"Bad Request: message can't be {what}{'d' if what == 'delete' else 'ed'}")
        if what == "edit" and "_forced" in message:
            raise Refused("Bad Request: message can't be edited")
        return message

    def _changed(self, message: dict[str, Any], content: dict[str, Any], given: Mapping[str, Any]) -> Any:
        before = (message.get("text"), message.get("entities") or [], message.get("reply_markup"))
        markup = checked_markup(given.get("reply_markup"))
        after = (content.get("text", before[0]), content.get("entities", before[1]), markup)
        if before == after:
            raise Refused(
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message"
            )
        message.update(content, edit_date=self._telegram.now())
        message.pop("reply_markup", None)
        if markup:
            message["reply_markup"] = markup
        return message


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    """A message inside another tells nothing of a third."""
    return {name: value for name, value in message.items() if name != "reply_to_message"}
