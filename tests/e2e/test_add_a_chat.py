"""A third chat platform, in a copy of the source: a folder of its own, a section of the configuration, a line in the
list. Then it is set up, given a repository, checked and served, and no other file was touched.

Its messages are lines of two files: what people write, and what is said to them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.house import house
from tests.e2e.test_add_a_command import changed_copy
from tests.programs import require

FOLDER = "codebutler/chat/postbox"
SECTION = '''
class PostboxSection(ChatSection, frozen=True):
    """Two files, the repository's box, and who may write there."""

    title = "Postbox"
    key = "postbox"
    prefix = "pb:"
    place_field = "box"
    place_name_field = "box_name"
    person_id = "pb:[a-z]+"
    person_like = "pb:"
    person_words = "somebody's name in the post office"
    tokens = (Token("stamp", "stamp", re.compile("stamp-.+"), "a stamp"),)

    stamp: str = ""
    api_base_url: str = ""
    box: str = ""
    box_name: str = ""
    allowed_users: tuple[str, ...] = ()

    @classmethod
    def person_in(cls, text: str) -> str:
        return text if text.startswith(cls.prefix) else ""


SECTIONS: tuple[type[ChatSection], ...] = (SlackSection, TelegramSection, PostboxSection)
'''
CHANGES = {
    "codebutler/config/chats.py": (
        "\nSECTIONS: tuple[type[ChatSection], ...] = (SlackSection, TelegramSection)\n",
        SECTION,
    ),
    "codebutler/config/schema.py": (
        "    telegram: TelegramSection = TelegramSection()\n",
        "    telegram: TelegramSection = TelegramSection()\n    postbox: PostboxSection = PostboxSection()\n",
        "    PERSON,\n",
        "    PERSON,\n    PostboxSection,\n",
    ),
    "codebutler/chat/platform.py": (
        '        "Telegram": "codebutler.chat.telegram.platform",\n',
        '        "Telegram": "codebutler.chat.telegram.platform",\n'
        '        "Postbox": "codebutler.chat.postbox.platform",\n',
    ),
}
PLATFORM = """
from codebutler.chat.platform import Option, Platform, RepoPlace
from codebutler.config.chats import PostboxSection
from codebutler.domain.errors import ChatAuthError
from codebutler.protocol.messages import ok


class PostboxPlatform(Platform):
    section = PostboxSection
    setup_options = (
        Option(flag="--stamp", key="postbox.stamp", help="The stamp."),
        Option(flag="--postbox-user", key="postbox.allowedUsers", help="Who may write.", many=True),
        Option(flag="--post-office", key="postbox.apiBaseUrl", help="Where the boxes are."),
    )
    place_options = (Option(flag="--box", key="box", help="Its box."),)
    needed_place = "--box BOX"

    def check(self, config):
        if not config.postbox.stamp:
            raise ChatAuthError("no stamp")

    def open(self, given):
        from codebutler.chat.postbox.chat import Post

        return Post(given.config.postbox, given.clock)

    def manifest(self, *, link):
        return "Buy a stamp."

    async def set_up(self, wish):
        wish.check(wish.given)
        wish.save(wish.given)
        return "Connected to the post office"

    async def place(self, wish):
        box = wish.given.get("box") or wish.present.removeprefix("pb:")
        wish.check(f"pb:{box}")
        return RepoPlace(id=f"pb:{box}", name=f"box {box}")

    async def doctor(self, config, table, clock):
        yield ok("postbox", "stamp", "is valid")


PLATFORM = PostboxPlatform()
"""
CHAT = '''
import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from codebutler.chat.people import Person
from codebutler.chat.platform import ConnectedChat
from codebutler.chat.port import Capabilities, Identity, Limits
from codebutler.config.chats import PostboxSection
from codebutler.domain.model import MessagePosted


@dataclass(frozen=True)
class Status:
    state: str
    trouble: str = ""


class Post:
    """The chat, its connection, and what the supervisor takes for both."""

    limits = Limits(workspace={}, channel={})
    capabilities = Capabilities()

    def __init__(self, section, clock):
        self.chat = self
        self._office = Path(section.api_base_url)
        self._clock = clock
        self._said = 0
        self._stop = asyncio.Event()
        self.connected = asyncio.Event()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def identity(self):
        return Identity(user_id="pb:butler", bot_id="pb:butler", team_id="post")

    async def person(self, user):
        return Person(id=user, names=(user.removeprefix("pb:").title(),))

    def _tell(self, kind, channel, **told):
        self._said += 1
        with (self._office / "said").open("a") as said:
            said.write(json.dumps({"kind": kind, "channel": channel, **told}) + "\\n")
        return f"9{self._said:09}"

    async def post(self, channel, post, op_id):
        return self._tell("post", channel, text=post.message.markdown, thread=post.thread)

    async def update(self, channel, update, op_id):
        self._tell("update", channel, text=update.message.markdown, of=update.target)

    async def react(self, channel, react):
        self._tell("react", channel, mark=react.mark, of=react.target, remove=react.remove)

    async def upload(self, upload):
        return "file"

    async def share(self, channel, upload, file_id):
        self._tell("file", channel, name=upload.filename)

    @property
    def status(self):
        return Status("connected" if self.connected.is_set() else "connecting")

    def connect(self, host):
        self._host = host
        pages = host.pages(self)
        return ConnectedChat(
            section=PostboxSection,
            connection=self,
            check=lambda config: None,
            use_tokens=lambda config: None,
            work=pages.run,
        )

    def look_again(self):
        pass

    async def stop(self):
        self._stop.set()

    async def run(self):
        self.connected.set()
        read = 0
        while not self._stop.is_set():
            lines = (self._office / "written").read_text().splitlines()
            for line in lines[read:]:
                read += 1
                letter = json.loads(line)
                now = self._clock.now().timestamp()
                ref = f"1{read:09}"
                await self._host.intake.accept(
                    MessagePosted(ref=ref, order=ref, sent_at=now, is_direct=False, **letter)
                )
            await self._clock.sleep(0.1)
'''
FILES = {
    f"{FOLDER}/__init__.py": "",
    f"{FOLDER}/platform.py": PLATFORM,
    f"{FOLDER}/chat.py": CHAT,
}


async def test_a_chat_is_added(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    office = tmp_path / "office"
    office.mkdir()
    (office / "written").write_text("")
    async with house(tmp_path) as built:
        (built.home / "config.json").write_text("{}")
        python = await changed_copy(tmp_path, CHANGES, FILES)
        built.prefix = ("sh", "-c", 'shift; exec "$0" "$@"', python)
        assert "Slack or Telegram or Postbox" in await built.run("--help")
        told = await built.run(
            *("setup", "--stamp", "stamp-1", "--postbox-user", "pb:ana", "--post-office", str(office))
        )
        assert "Connected to the post office" in told
        assert "add-repo PATH --box BOX" in told
        built.repositories.append(git_repo)
        built.hand_over()
        told = await built.run(
            "add-repo", str(git_repo), "--box", "seven", "--name", "blog", "--agent", "rehearsal"
        )
        assert "Registered blog: box seven (pb:seven)" in told
        assert await built.run("allow", "pb:ben") == "Allowed: pb:ben\n"
        assert (await built.run("allow")).splitlines() == ["pb:ana", "pb:ben"]
        await built.run("deny", "pb:ben")
        await built.start_supervisor()
        await built.until_status(lambda status: status["postbox"]["state"] == "connected")
        for who in ("ben", "ana"):
            letter = {"channel": "pb:seven", "user": f"pb:{who}", "text": "list the files"}
            with (office / "written").open("a") as written:
                written.write(f"{json.dumps(letter)}\n")
        await built.until_status(
            lambda status: status["journal"]["pending"] == 0 and "README.md" in (office / "said").read_text()
        )
        said = [json.loads(line) for line in (office / "said").read_text().splitlines()]
        refused = [each for each in said if "`postbox.allowedUsers`" in each.get("text", "")]
        assert len(refused) == 1
        assert {each["channel"] for each in said} == {"pb:seven"}
        assert "postbox     connected" in await built.run("status")
        found = json.loads(await built.run("doctor", "--json", check=False))["findings"]
        assert {each["area"] for each in found} >= {"postbox", "repos"}
        assert not {"slack", "telegram"} & {each["area"] for each in found}
