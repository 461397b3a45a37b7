"""What a person tells BotFather to get a bot for CodeButler."""

from __future__ import annotations

from codebutler.chat.telegram.updates import menu

BOTFATHER = "https://t.me/BotFather"


def manifest() -> str:
    """The dialogue, and our commands in BotFather's own form."""
    commands = "\n".join(f"{each['command']} - {each['description']}" for each in menu())
    return f"""\
In Telegram, send these to @BotFather ({BOTFATHER}):

  /newbot          Answer with a name, then with a username that ends in "bot".
                   Paste the token into `codebutler setup`.
  /setprivacy      Only if the bot is not to be an administrator of its groups: choose Disable, then add
                   the bot to them again. An administrator reads every message without this.
  /setjoingroups   Must stay on Enable, unless you use the private chat only.

Then `codebutler setup` finds out your number, and `codebutler add-repo` adds the bot to a group.

Do not send /setcommands: CodeButler sets this list whenever it connects.

{commands}"""
