"""After a change of the registry or a config: the running supervisor, if there is one, reads them again."""

from __future__ import annotations

from codebutler.cli.output import notice
from codebutler.cli.surroundings import home
from codebutler.domain.errors import CodeButlerError, NotRunningError


def reload_supervisor() -> bool:
    """Say on stderr what the supervisor made of the change; False without one, there is nothing to do then."""
    if not home().socket.exists():
        return False
    from codebutler.cli.talk import talk
    from codebutler.control.messages import ReloadRequest

    try:
        done = talk(ReloadRequest(), _ignore)
    except NotRunningError:
        return False
    except CodeButlerError as error:
        notice(f"warning: the change is saved, but the running supervisor did not reload: {error}")
    else:
        notice(f"Supervisor reloaded: {done.text}")
    return True


def _ignore(_reply: object) -> None:
    """A reload says nothing before its last word."""
