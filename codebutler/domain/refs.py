"""A chat's IDs. To all code but its adapter they are opaque names, compared for equality.

On disk and on the wire they are texts. Only an adapter, settings, and code that reads stored IDs create one from a
text: a type checker enforces that, and a test forbids looking inside.
"""

from __future__ import annotations

from typing import NewType

ConversationRef = NewType("ConversationRef", str)
"""Where people talk: a channel, a group, or one person's direct conversation with us. Fields call it
``channel``; a thread in it is named by its first message."""
NO_CHANNEL = ConversationRef("")
"""No channel, or none yet."""
PersonRef = NewType("PersonRef", str)
"""Who talks: a person, a bot, or ``OPERATOR``."""
NO_PERSON = PersonRef("")
MessageRef = NewType("MessageRef", str)
"""A message, and the thread it starts. One of ours sorts as text among the ``order`` of others' messages
there."""
NOWHERE = MessageRef("")
"""No message: there is none, or none yet."""
