"""What models call things that have another name here, because other agents' tools call them so. Data.

Everything is compared in lower case, letters and figures alone: ``filePath`` and ``file_path`` are ``filepath``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_FILE = "file filepath filename targetfile relativepath relativeworkspacepath absolutepath notebookpath"

FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        field: frozenset(words.split())
        for field, words in {
            "path": f"{_FILE} paths files directory dir folder directorypath dirpath",
            "paths": f"{_FILE} path files filepaths filenames",
            "old": "oldstring oldstr oldtext oldcode search searchtext find original target before",
            "new": "newstring newstr newtext newcode replace replacement replacewith updated after",
            "all": "replaceall allowmultiple global everyoccurrence",
            "content": "contents text filetext filecontent filecontents body data code",
            "command": "cmd commands script shellcommand bashcommand commandline",
            "cwd": "workdir workingdirectory workingdir directory dir",
            "type": "input stdin keys sendkeys",
            "wait_s": "timeout timeouts timeoutms timeoutsec timeoutseconds wait waitseconds yieldtimems",
            "limit_s": "timeout timeouts timeoutms timeoutsec timeoutseconds wait waits waitseconds",
            "pattern": "query search searchterm searchstring searchpattern text term keyword",
            "regex": "isregex isregexp useregex regexp",
            "any_case": "i ignorecase caseinsensitive insensitive",
            "glob": "include includes includepattern filepattern fileglob",
            "most": "limit max maxresults maxcount headlimit resultlimit numresults count",
            "first_line": "offset start startline firstline fromline linestart line",
            "lines": "limit count numlines linecount maxlines numberoflines",
            "text": "goal subgoal title description content step task name",
            "number": "id index step subgoal subgoalid stepnumber",
            "state": "status",
            "question": "text prompt message query",
            "options": "choices answers suggestions",
            "answer": "text message result summary finalanswer response content output",
            "needs_user": "needsinput needuser blocked",
            "url": "uri link address href",
            "query": "q search searchquery searchterm text",
            "key": "name id title",
            "value": "text content fact note",
            "plan": "text content markdown",
            "name": "skill skillname",
        }.items()
    }
)

_SAID_ALONG = "description explanation reason purpose thought comment note title name id"
EXPLAINING = frozenset(_SAID_ALONG.split())
"""What models add to any call: an argument is meant by it only where that one is required."""

VALUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        value: frozenset(words.split())
        for value, words in {
            "done": "completed complete finished achieved success",
            "in_progress": "started active doing working begun running",
            "pending": "todo open notstarted waiting",
            "CTRL_C": "ctrlc sigint int interrupt c",
            "KILL": "sigkill kill terminate sigterm stop",
        }.items()
    }
)

TOOLS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        tool: frozenset(words.split())
        for tool, words in {
            "list_files": "ls listdir listdirectory listfile glob findfiles filesearch",
            "code_search": "grep rg ripgrep search searchfiles searchcode codebasesearch grepsearch searchfilecontent",
            "read_files": "read readfile readmanyfiles view viewfile openfile cat",
            "edit_file": "edit strreplace replace searchreplace replaceinfile editfiles applydiff",
            "write_file": "write createfile writetofile savefile create overwritefile",
            "run_terminal_command": "bash shell sh terminal exec execute runcommand executecommand runshellcommand "
            "runinterminal execcommand",
            "bash": "runterminalcommand shell sh terminal exec execute runcommand executecommand runshellcommand",
            "web_fetch": "fetch webfetch fetchurl openurl readurl",
            "web_search": "websearch searchweb",
            "ask_user": "ask askuserquestion askquestion askfollowupquestion",
            "end_turn": "finish done complete attemptcompletion taskcomplete submit finalanswer",
        }.items()
    }
)

WEIGHTY: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "bash": frozenset(FIELDS["cwd"] | {"cwd"}),
        "write_file": frozenset({"append", "mode", "insertline", "startline", "endline"}),
    }
)
"""By tool: arguments that it does not have, and without which it would do something else than was meant."""
