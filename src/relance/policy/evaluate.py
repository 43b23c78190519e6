"""What a policy wants for one table, and why. Pure: nothing is looked up, and the time is an argument.

Rules are read from top to bottom, the defaults first. For each part, the last rule that matches the table
and sets the part decides, and takes it whole; `false` switches the part off. Window and rate limit are
found the same way. When a job is due for a table is decided by its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from relance.jobs.base import Job, Scope, Verdict, policy_kinds
from relance.jobs.facts import TableFacts, TableState
from relance.policy.actions import Action
from relance.policy.model import Policy, Rule
from relance.policy.windows import Window

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a rule is about the table."""

    rule: str
    line: int
    matches: bool
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one kind of job."""

    kind: str
    rule: str | None
    """The rule that decides; None when no rule has the part."""
    overrides: tuple[str, ...]
    """Rules that match, have the part, and come before that rule; the nearest first."""
    action: Action | None
    why: str
    """Why there is an action, or none."""
    refused: bool = False
    """The policy asks for it, and it cannot be done: somebody should look at the rule or the table."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A part that a rule asks for and that cannot be done to a table."""

    kind: str
    table: tuple[str, ...]
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a policy comes to what it wants for one table, or for the root: ()."""

    table: tuple[str, ...]
    matches: tuple[Match, ...]
    """All rules, in their order."""
    window: str
    """Which window holds for the table, by which rule, and whether it is open."""
    decisions: tuple[Decision, ...]
    """One for each kind that applies, in the order in which they are done."""
    error: str | None = None
    """Why the table cannot be read: then nothing is done to it."""

    @property
    def actions(self) -> list[Action]:
        return [each.action for each in self.decisions if each.action is not None]

    @property
    def refused(self) -> list[Refused]:
        return [
            Refused(each.kind, self.table, each.rule or "", each.why)
            for each in self.decisions
            if each.refused
        ]


def evaluate(policy: Policy, facts: TableFacts, now: datetime) -> list[Action]:
    """Return what is to be done to a table, in the order of their kinds.

    The same policy, facts and time give the same actions. Whatever depends on the time is in the settings
    as a moment, so that the actions mean the same when they are run later.
    """
    found = decisions(policy, facts, now)
    return [each.action for each in found if each.action is not None]


def decisions(policy: Policy, facts: TableFacts, now: datetime) -> list[Decision]:
    """Return what becomes of each part for a table, without a word about which rules match."""
    if facts.error is not None:
        return []
    return list(_Around(facts.table, _matching(policy, facts), now).decisions(facts))


def evaluate_root(policy: Policy, now: datetime) -> list[Action]:
    """Return what is to be done to the lake as a whole, in the order of their kinds."""
    return explain_root(policy, now).actions


def explain(policy: Policy, facts: TableFacts, now: datetime) -> Explanation:
    """Return which rules match a table, which one decides each part, and what follows."""
    properties = dict(facts.properties)
    matches = tuple(_match(rule, facts.table, properties) for rule in policy.rules)
    around = _Around(facts.table, _matching(policy, facts), now)
    if facts.error is not None:
        error = f"the table cannot be read: {facts.error}"
        return Explanation(facts.table, matches, around.shown, (), error)
    return Explanation(facts.table, matches, around.shown, tuple(around.decisions(facts)))


def explain_root(policy: Policy, now: datetime) -> Explanation:
    """Return which rule decides each part that is about the lake as a whole, and what follows."""
    matches = tuple(
        Match(
            rule.name,
            rule.line,
            rule.is_for_all,
            "applies to all tables" if rule.is_for_all else "does not apply to all tables",
        )
        for rule in policy.rules
    )
    around = _Around((), [rule for rule in policy.rules if rule.is_for_all], now)
    return Explanation(
        (), matches, around.shown, tuple(around.decisions(TableFacts(()), policy_kinds(Scope.ROOT)))
    )


def _matching(policy: Policy, facts: TableFacts) -> list[Rule]:
    properties = dict(facts.properties)
    return [rule for rule in policy.rules if rule.applies(facts.table, properties)]


def _match(rule: Rule, table: Sequence[str], properties: Mapping[str, str]) -> Match:
    pattern = next((each for each in rule.tables if each.matches(table)), None)
    if pattern is None:
        return Match(rule.name, rule.line, False, f"no match for {', '.join(map(str, rule.tables))}")
    broken = next((each for each in rule.properties if not each.holds(properties)), None)
    if broken is not None:
        return Match(rule.name, rule.line, False, f"{pattern} matches, but not the condition: {broken}")
    why = " and ".join([f"{pattern} matches", *map(str, rule.properties)])
    return Match(rule.name, rule.line, True, why)


class _Around:
    """The rules that match a table, and what they say beside the jobs."""

    def __init__(self, table: tuple[str, ...], rules: Sequence[Rule], now: datetime) -> None:
        self._table = table
        self._rules = rules
        window, by = _last([(rule.window, rule.name) for rule in rules])
        self._rate, _ = _last([(rule.rate_limit, rule.name) for rule in rules])
        self._now = now
        self._closed = ""
        self.shown = f"none: disabled by rule {by!r}" if by else "none"
        if isinstance(window, Window):
            self.shown = f"{window}, set by rule {by!r}"
            if not window.is_open(now):
                self._closed = f"the window {window} opens at {window.opens_at(now).isoformat()}"
                self.shown += f"; {self._closed}"

    def decisions(self, facts: TableFacts, kinds: Sequence[type[Job]] | None = None) -> Iterator[Decision]:
        """Yield what becomes of each kind, by default of all that are about tables."""
        about_tables = [kind for kind in policy_kinds() if kind.scope is not Scope.ROOT]
        for kind in about_tables if kinds is None else kinds:
            yield self._decision(kind, facts)

    def _decision(self, kind: type[Job], facts: TableFacts) -> Decision:
        asking = [rule for rule in reversed(self._rules) if kind.kind in rule.jobs]
        if not asking:
            return Decision(kind.kind, None, (), None, "no rule sets it")
        rule, *others = asking
        job = rule.jobs[kind.kind]
        overrides = tuple(each.name for each in others)
        if job is False:
            return Decision(kind.kind, rule.name, overrides, None, "disabled by the rule")
        verdict = _why_never(kind, facts) or job.due(facts, self._now)
        action, why = None, verdict.why
        if verdict.due and self._closed:
            why = f"{why}, but {self._closed}"
        elif verdict.due:
            settings = self._limited(job.pin(self._now, facts)).settings
            action = Action(kind.kind, self._table, rule.name, why, settings)
        return Decision(kind.kind, rule.name, overrides, action, why, verdict.refused)

    def _limited(self, job: Job) -> Job:
        """Return a job with the rate limit of the rules where it has one and sets none."""
        if not self._rate or getattr(job, "rate_limit", 0) is not None:
            return job
        return job.model_copy(update={"rate_limit": self._rate})


def _why_never(kind: type[Job], facts: TableFacts) -> Verdict | None:
    """Return why a kind does not apply to a table in its state."""
    is_dropped = facts.state is TableState.DROPPED
    if kind.scope is Scope.DROPPED and not is_dropped:
        return Verdict(False, "the table is not dropped")
    if kind.scope is Scope.TABLES and is_dropped:
        return Verdict(False, "the table is dropped")
    if kind.scope is Scope.TABLES and kind.needs_data and facts.state is TableState.DECLARED:
        return Verdict(False, "the table is only declared and has no data")
    return None


def _last(settings: Sequence[tuple[T | None, str]]) -> tuple[T | None, str]:
    """Return the last that is set, and by which rule."""
    return next(((value, rule) for value, rule in reversed(settings) if value is not None), (None, ""))
