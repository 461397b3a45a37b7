"""When a cron line is due. Pure.

APScheduler does the calendar. This corrects three differences from cron as everybody knows it: numbers of weekdays (0
and 7 are Sunday), a day of the month together with a weekday (either is enough), and the hour that repeats when summer
time ends (a job with a fixed hour runs once).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from msgspec import Struct

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = re.compile(r"([a-z]{3}|[0-7])(?:-([a-z]{3}|[0-7]))?(?:/(\d+))?")


class Cron(Struct, frozen=True):
    """A cron line in a time zone. Made by ``parse``."""

    line: str
    zone: ZoneInfo
    triggers: tuple[CronTrigger, ...]
    fixed_hour: bool

    def after(self, moment: datetime) -> datetime | None:
        """The first time after ``moment``, in UTC; None if there is none."""
        times = [self._after(trigger, moment) for trigger in self.triggers]
        return min((time for time in times if time is not None), default=None)

    def _after(self, trigger: CronTrigger, moment: datetime) -> datetime | None:
        while True:
            # APScheduler has no end year: it searches until 9999 for a 31st of February.
            found = trigger.get_next_fire_time(None, moment + timedelta(microseconds=1))
            if found is None:
                return None
            moment = found.astimezone(UTC)
            if not (self.fixed_hour and moment.astimezone(self.zone).fold):
                return moment


def parse(line: str, zone: ZoneInfo) -> Cron:
    """A cron line of five fields, or a word such as ``@daily``. Raises ValueError, which says what is wrong."""
    fields = MACROS.get(line.strip().lower(), line).split()
    if len(fields) != 5:
        raise ValueError(f"{line!r} is not a cron line: five fields, as in '0 3 * * 1-5', or @daily")
    minute, hour, day, month, weekday = (field.lower() for field in fields)
    try:
        weekday = _weekdays(weekday)
        # If both are given, cron runs when either matches.
        days = ((day, "*"), ("*", weekday)) if "*" not in (day[0], weekday[0]) else ((day, weekday),)
        triggers = tuple(
            CronTrigger(
                minute=minute, hour=hour, day=each, month=month, day_of_week=of_week, second=0, timezone=zone
            )
            for each, of_week in days
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{line!r} is not a cron line: {error}") from None
    return Cron(line, zone, triggers, fixed_hour=not hour.startswith("*"))


def _weekdays(field: str) -> str:
    """Cron's weekdays as APScheduler's names; a range across Sunday becomes a list."""
    if field.startswith("*"):
        return "*" if field == "*" else ",".join(WEEKDAYS[n] for n in range(0, 7, _step(field[1:])))
    names: list[str] = []
    for part in field.split(","):
        match = _WEEKDAY.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a weekday")
        first = _number(match[1])
        last = _number(match[2]) if match[2] else (6 if match[3] else first)
        if last < first:
            last += 7
        names += [WEEKDAYS[n % 7] for n in range(first, last + 1, int(match[3] or 1) or 1)]
    return ",".join(dict.fromkeys(names))


def _step(text: str) -> int:
    if not re.fullmatch(r"/[1-7]", text):
        raise ValueError(f"'*{text}' is not a weekday")
    return int(text[1:])


def _number(text: str) -> int:
    if text.isdigit():
        return int(text)
    if text not in WEEKDAYS:
        raise ValueError(f"{text!r} is not a weekday")
    return WEEKDAYS.index(text)
