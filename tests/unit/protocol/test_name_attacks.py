"""What a worker may call the messages of its operations: the parent keeps these names, for each of its messages."""

from __future__ import annotations

import pytest

from codebutler.domain.errors import ProtocolError
from codebutler.domain.message import said
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.domain.refs import MessageRef
from codebutler.protocol.messages import Send
from codebutler.protocol.pipe import to_parent_codec

LONG = MessageRef("1" * 200_000)


@pytest.mark.parametrize(
    "operation",
    [
        Post(message=said("hello"), thread=LONG),
        Upload(filename="a", content=b"", thread=LONG),
        Update(target=LONG, message=said("hello")),
        React(target=LONG, mark="done"),
    ],
)
def test_no_message_has_a_name_of_kilobytes(operation: Operation) -> None:
    codec = to_parent_codec()
    with pytest.raises(ProtocolError):
        codec.decode(codec.encode(Send(op_id="1", operation=operation))[4:])
