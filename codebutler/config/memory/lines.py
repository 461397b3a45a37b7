"""What may be a line of the memory, and whether it is fit to be kept without a person's look. Pure.

Lines are proposed by a model that has read what an agent said, and an agent reads files and pages of strangers. So a
line is a short plain sentence: what could end its frame, draw nothing or speak with another voice is taken out.
"""

from __future__ import annotations

import re
import unicodedata

from codebutler.text.redact import Redactor

MAX_LINE_CHARS = 300
BULLET = "- "
_BULLETS = re.compile(r"^(?:[-*+•·‣](?:\s+|$)|#+\s*|\d{1,3}[.)](?:\s+|$))+")
_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "`": "'", "\N{FULLWIDTH LESS-THAN SIGN}": "‹"})
_ORDERS = (
    r"\b(ignore|disregard|forget|override|bypass|overrule)\b.{0,60}\b(instruction|rule|restriction|prompt|order|above"
    r"|previous|earlier|safety|approval|permission|polic)",
    r"\b(system|developer)\s+(prompt|message|note|instruction)",
    r"^\s*(system|assistant|human|user|developer|tool)\s*:",
    r"\[/?(inst|system|sys)\b|\|im_(start|end)\||‹/?\s*(memory|system|instruction|prompt)",
    r"\b(curl|wget|iwr|invoke-webrequest)\b.{0,200}(\||;|&&|\$\(|\b(ba|z)?sh\b|-d\b|--data|--upload|-T\b|-F\b)",
    r"\b(curl|wget|nc|ncat|scp)\b.{0,80}(https?://|@)",
    r"\b(upload|send|post|exfiltrat\w*|leak|copy|e-?mail|paste)\b.{0,80}(\.env\b|\b(secret|token|key|password|credential|ssh))",
    r"\b(without|never|no need to|don'?t|do not|skip|stop)\b.{0,30}\b(ask|approv|confirm|permission|review|sandbox)",
    r"\brm\s+-\w*[rf]|--no-verify|--force\b|--dangerously|\bforce[- ]push|chmod\s+(-R\s+)?777",
    r"\bsudo\b|bypasspermissions",
    r"\b(you|agents?|claude|assistant|the model)\s+(must|should|shall|have to|are (now|allowed|permitted))\b",
    r"\b(reveal|print|show|repeat)\b.{0,40}\b(system prompt|instructions|secrets?|tokens?|credentials?)\b",
    r"[A-Za-z0-9+/=]{80,}",
)
"""What reads like an order to an agent, or a way to do harm, rather than a fact. A tripwire, not a wall: it decides
only whether a person has to look."""
_ORDER = re.compile("|".join(_ORDERS), re.IGNORECASE)


def clean(text: str) -> str:
    """The fact as one line without its bullet: no control, format or private characters, no tags, no code marks, at
    most 300 characters; "" if nothing is left."""
    shown = "".join(" " if each.isspace() else each for each in text if not _is_hidden(each))
    plain = " ".join(unicodedata.normalize("NFC", shown).translate(_LOOKALIKES).split())
    line = _BULLETS.sub("", plain)
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1].rstrip() + "…"


def visible(text: str) -> str:
    """A text of several lines as people see it: without what draws nothing or turns the reading direction."""
    return "\n".join("".join(char for char in line if not _is_hidden(char)) for line in text.splitlines())


def suspicion(line: str) -> str:
    """Why a person should look at the line before it is kept: the words that trip; "" if nothing does."""
    found = _ORDER.search(unicodedata.normalize("NFKC", line))
    return found[0].strip()[:60] if found else ""


def holds_secret(line: str, redactor: Redactor) -> bool:
    """Whether there is something in it that must not be written down."""
    return redactor.redact(line) != line


def _is_hidden(char: str) -> bool:
    """Whether it draws nothing, turns the reading direction or means something only somewhere else."""
    if char.isspace():
        return False  # becomes a space
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn") or 0xFE00 <= ord(char) <= 0xFE0F
