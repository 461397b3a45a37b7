"""An MCP server for agents that run inside the sandbox: it offers the tool ``ask_to_push``, and nothing else.

The agent starts it inside its own sandbox. It reads no file, connects to nothing and always answers the same: the
worker sees the call among the agent's events, as it sees every other call. Model Context Protocol 2025-06-18, over
stdio.
"""

from __future__ import annotations

from functools import cache

import msgspec

from codebutler.config.section import OURS
from codebutler_worker.agents.backend import Approval
from codebutler_worker.sandbox.system import find_program
from codebutler_worker.tools.talking import PUSH_ASKED, PUSH_DESCRIPTION, PUSH_TOOL, PUSH_WHY

ALLOWED = f"mcp__{OURS}__{PUSH_TOOL}"
"""What Claude Code and Kimi Code call the tool."""
PERL = "perl"

# Perl is there wherever git is, but not everywhere with its JSON module. A request is one line: an object, of which we
# need the id, the method and the protocol's version.
SERVER = r"""
use strict;
my ($tools, $answer) = @ARGV;
$| = 1;
my $string = qr/"(?:[^"\\]|\\.)*"/;
my $value = qr/(?:$string|[-\w.+]+|(?<nested>[\[{](?:[^\[\]{}"]++|$string|(?&nested))*[\]}]))/;
while (my $line = <STDIN>) {
    my %said;
    while ($line =~ /\G\s*[{,]\s*($string)\s*:\s*($value)/gc) { $said{$1} = $2 }
    my ($id, $method) = ($said{'"id"'}, $said{'"method"'} // "");
    next unless defined $id and $id ne "null";
    my $result = "{}";
    if ($method eq '"initialize"') {
        my ($version) = ($said{'"params"'} // "") =~ /"protocolVersion"\s*:\s*("[\d-]{1,20}")/;
        $version //= '"2025-06-18"';
        $result = qq({"protocolVersion":$version,"capabilities":{"tools":{}},)
            . qq("serverInfo":{"name":"codebutler","version":"1"}});
    }
    $result = $tools if $method eq '"tools/list"';
    $result = $answer if $method eq '"tools/call"';
    print qq({"jsonrpc":"2.0","id":$id,"result":$result}\n);
}
"""


@cache
def server() -> tuple[str, ...]:
    """How an agent starts it; () if the system has no Perl."""
    if find_program(PERL) is None:
        return ()
    why = {"type": "string", "description": PUSH_WHY}
    schema = {"type": "object", "properties": {"why": why}, "required": ["why"]}
    hints = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
    tool = {"name": PUSH_TOOL, "description": PUSH_DESCRIPTION, "inputSchema": schema, "annotations": hints}
    answer = {"content": [{"type": "text", "text": PUSH_ASKED}]}
    said = (msgspec.json.encode(each).decode() for each in ({"tools": [tool]}, answer))
    return (PERL, "-e", SERVER.strip(), *said)


def needs_nobody(asked: Approval) -> bool:
    """Whether an agent asks permission for nothing but this. Not by the name alone: some agents call a command by what
    it runs, and a program may be called like this tool."""
    return asked.tool == ALLOWED and asked.input.keys() == {"why"}
