"""Records of runs for the tests of reports: every state, no tables and very many, names that mean harm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from relance.jobs.base import Effect, Estimate, Figures
from relance.jobs.facts import TableFacts, TableState
from relance.policy.actions import Action
from relance.policy.records import ActionRecord, Outcome, RunRecord, RunState, TableChange, Totals

NOW = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)

HOSTILE_NAMES = (
    "<script>document.title='taken'</script>",
    '"><img src="http://127.0.0.1:9/x" onerror="document.title=1">',
    "</title></svg><iframe src='http://127.0.0.1:9/'></iframe>",
    "&lt;b&gt; & 'quotes' \"too\"",
    "]]><!-- --!> <style>*{display:none}</style>",
    "right\u202eto left\u2066 and \u200bzero width",
    "\x00\x1b[31mred\x07\r\n",
    "lone \ud800 surrogate",
    "温度センサーの読み取り値" * 12,
    "données_été_Straße_Ωmega_ﷺ_🏔️",
    "W" * 5000,
    "a-name-without-a-place-to-break" * 40,
)


def a_run(
    actions: Sequence[ActionRecord] = (),
    changes: Sequence[TableChange] = (),
    *,
    state: RunState = RunState.DONE,
    message: str = "",
) -> RunRecord:
    """Return the record of a run with totals that fit its changes."""
    real = state in (RunState.DONE, RunState.FAILED)
    return RunRecord(
        run="20260301T020000-7f3a",
        root="s3://lake/prod",
        policy="policy.toml",
        actor="ops@nightly",
        state=state,
        engine="spark: 40 tables on 64 slots",
        started_at=NOW,
        ended_at=None if state is RunState.RUNNING else NOW + timedelta(minutes=12, seconds=31),
        before=_totals([each.before for each in changes]),
        after=_totals([each.after for each in changes if each.after]) if real else None,
        actions=tuple(actions),
        changes=tuple(changes),
        message=message,
    )


def night(tables: int = 40, *, failures: bool = True) -> RunRecord:
    """Return the record of a run as an operator sees it in the morning."""
    names = [
        ("prod", ("sensors", "events", "vectors", "users")[at % 4] + f"_{at:04}") for at in range(tables)
    ]
    changes = [_change(name, at) for at, name in enumerate(names)]
    actions = [record for at, name in enumerate(names) for record in _actions(name, at, failures=failures)]
    dropped = [_dropped(("staging", f"import_{at:03}"), at) for at in range(min(tables, 9))]
    actions += [
        _action(
            "purge", each.before.table, Effect(files=40 + at, bytes=(at + 1) * 700_000_000), seconds=3 + at
        )
        for at, each in enumerate(dropped)
        if each.after is None
    ]
    actions.append(
        _action("remove_orphans", (), Effect(files=812, bytes=41_000_000_000, note="812 orphans"), seconds=71)
    )
    state = RunState.FAILED if failures else RunState.DONE
    return a_run(actions, [*changes, *dropped], state=state)


def crowded() -> RunRecord:
    """Return a run over 2,000 tables in which 50 tables with very long names failed, some of them twice."""
    run = night(2000, failures=False)
    prefix = ("analytics_department_emea", "a_very_long_namespace_name_that_somebody_generated_" + "x" * 30)
    names = [(*prefix, f"table_with_a_name_of_many_words_{'and_more_words_' * 8}{at:04}") for at in range(50)]
    failed = []
    for at, name in enumerate(names):
        address = f"https://bucket/{'/'.join(name)}/_versions/{at}.manifest"
        error = f"Generic S3 error: Error performing GET {address} after 10 retries: connection reset by peer"
        failed.append(_action("compact", name, None, error=error, seconds=44 + at))
        if at % 10 == 0:
            error = "cannot read the manifest of version 7:\nunexpected end of file"
            failed.append(_action("clean_up", name, None, error=error, seconds=1))
    changes = [_change(name, at * 3) for at, name in enumerate(names)]
    return a_run([*run.actions, *failed], [*changes, *run.changes], state=RunState.FAILED)


def dry(record: RunRecord, state: RunState = RunState.PLANNED, message: str = "") -> RunRecord:
    """Return the dry run that went before a run, or the same refused."""
    planned = tuple(
        ActionRecord(each.action, Outcome.PLANNED, _estimate(each.action.kind, at))
        for at, each in enumerate(record.actions)
    )
    changes = tuple(replace(each, after=None) for each in record.changes)
    return replace(record, state=state, actions=planned, changes=changes, after=None, message=message)


def hostile() -> RunRecord:
    """Return a run of tables whose names, errors and reasons try to break out of the page."""
    changes, actions = [], []
    for at, name in enumerate(HOSTILE_NAMES):
        changes.append(_change((name, name), at))
        actions.append(_action("compact", (name, name), None, error=f"cannot read {name}", seconds=at + 1))
        dropped = _dropped((name,), at)
        changes.append(replace(dropped, after=dropped.before))
        changes.append(
            TableChange(TableFacts((name, "unread"), error=name), TableFacts((name, "unread"), error=name))
        )
    bad = HOSTILE_NAMES[1]
    run = a_run(actions, changes, state=RunState.FAILED, message=f"{bad}\n{HOSTILE_NAMES[0]}")
    return replace(run, root=f"s3://{bad}", policy=bad, actor=bad, engine=HOSTILE_NAMES[2], run=bad)


def extreme() -> RunRecord:
    """Return a run with figures of nothing and figures beyond any lake."""
    huge, none = 2**80, 0
    changes, actions = [], []
    for at, (before, after) in enumerate(((huge, none), (none, huge), (none, none), (huge, huge), (1, 0))):
        table = ("figures", f"t{at}")
        changes.append(TableChange(_facts(table, before), _facts(table, after)))
        effect = Effect(rows=before, files=before, bytes=before)
        actions.append(_action("clean_up", table, effect, seconds=10.0 ** (3 * at - 6)))
    return a_run(actions, changes)


def every_run() -> dict[str, RunRecord]:
    """Return one record for each way in which a run can end, and for each shape that a lake can have."""
    seen = night()
    return {
        "night": seen,
        "no_failures": night(failures=False),
        "dry_run": dry(seen),
        "refused": dry(seen, RunState.REFUSED, "the run would delete 84 GB and max_bytes_deleted is 50 GB"),
        "interrupted": replace(seen, state=RunState.RUNNING, ended_at=None, after=None),
        "nothing_to_do": a_run(),
        "empty_dry_run": a_run(state=RunState.PLANNED),
        "hostile": hostile(),
        "extreme": extreme(),
        "one_table": night(1, failures=False),
    }


def _change(table: tuple[str, ...], at: int) -> TableChange:
    size = 180_000_000_000 // (at + 1) ** 2 + 9_000_000
    before = TableFacts(
        table,
        version=40 + at,
        rows=size // 120,
        deleted_rows=size // 120 * (at * 7 % 30) // 100,
        fragments=100 + at,
        bytes=size,
        versions=30 + at * 13 % 90,
        oldest_version_at=NOW - timedelta(days=30),
        last_write=NOW - timedelta(hours=at),
        unindexed_rows=at * 1000,
        properties=(("team", "weather"),),
        columns=(("ts", "timestamp[us]"), ("value", "double")),
    )
    after = replace(
        before, deleted_rows=0, bytes=size * (60 + at % 40) // 100, versions=5 + at % 3, fragments=4
    )
    return TableChange(before, after)


def _dropped(table: tuple[str, ...], at: int) -> TableChange:
    facts = TableFacts(
        table,
        TableState.DROPPED,
        bytes=700_000_000 * (at + 1),
        deletion_id=f"d{at}",
        dropped_at=NOW - timedelta(days=6 - at % 5, hours=at),
        purge_after=None if at % 7 == 5 else NOW + timedelta(days=at % 5 - 1, hours=at),
    )
    due = facts.purge_after is not None and facts.purge_after <= NOW
    return TableChange(facts, None if due and at % 2 == 0 else facts)


def _facts(table: tuple[str, ...], figure: int) -> TableFacts:
    return TableFacts(table, rows=figure, deleted_rows=figure, bytes=figure, versions=figure)


def _actions(table: tuple[str, ...], at: int, *, failures: bool) -> list[ActionRecord]:
    if failures and at % 13 == 4:
        error = "Table changed: fragment 17 was rewritten by another writer ten times; run it again later"
        return [_action("compact", table, None, error=error, seconds=44)]
    if at % 9 == 8:
        skipped = _action("compact", table, None)
        return [replace(skipped, outcome=Outcome.SKIPPED if at % 2 else Outcome.NOTHING)]
    effect = Effect(41 + at, rows=200_000 * at, note=f"{100 + at} fragments became 4")
    cleaned = Effect(
        files=900 + at,
        bytes=24_000_000_000 // (at + 1),
        before=Figures(versions=30),
        after=Figures(versions=5),
    )
    return [
        _action("compact", table, effect, seconds=200 / (at + 1)),
        _action("clean_up", table, cleaned, seconds=0.4 + at / 10),
    ]


def _action(
    kind: str, table: tuple[str, ...], effect: Effect | None, *, error: str | None = None, seconds: float = 0
) -> ActionRecord:
    action = Action(
        kind, table, "prod tables", "112 fragments, 100 allowed; 14 % of rows deleted", {"keep": 5}
    )
    outcome = Outcome.FAILED if error else Outcome.DONE
    return ActionRecord(action, outcome, None, effect, error, NOW, timedelta(seconds=seconds))


def _estimate(kind: str, at: int) -> Estimate:
    return Estimate(rows=1000 * at, files=12 + at, bytes=1_500_000_000 * (at + 1), note=f"{kind} of 12 files")


def _totals(tables: Sequence[TableFacts]) -> Totals:
    return Totals(
        tables=sum(each.state is TableState.LIVE for each in tables),
        dropped=sum(each.state is TableState.DROPPED for each in tables),
        unreadable=sum(each.error is not None for each in tables),
        rows=sum(each.rows or 0 for each in tables),
        deleted_rows=sum(each.deleted_rows or 0 for each in tables),
        fragments=sum(each.fragments or 0 for each in tables),
        bytes=sum(each.bytes or 0 for each in tables),
        versions=sum(each.versions or 0 for each in tables),
    )
