"""Where jobs are written down: in the home, and in each repository that is served."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.programs import program_names
from codebutler.config.registry import Provenance
from codebutler.config.resolve import env_file_values
from codebutler.intake.repos import RepoTable
from codebutler.schedule.files import Source
from codebutler.schedule.jobs import Place, place_at, place_in


def job_sources(home: Home, table: RepoTable, env: Mapping[str, str], provenance: Provenance) -> list[Source]:
    """Every directory whose ``jobs.yaml`` counts: the home's, which may name any repository, and each one's own."""
    places = tuple(
        Place(
            each.entry.name,
            each.channel_id,
            each.config.channel_name,
            program_names(each.config),
        )
        for each in table.served
    )
    own = [
        Source(
            place.repo,
            RepoPaths(Path(each.entry.path)).open,
            place_at(place),
            (place,),
            objection=partial(provenance.objection, each.entry),
        )
        for each, place in zip(table.served, places, strict=True)
    ]
    return [Source("", home.open, place_in(places), places, lambda: {**env_file_values(home), **env}), *own]
