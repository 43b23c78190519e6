"""The framework of maintenance: slices, retries, giant tables, failures, progress."""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from tests.support.jobs.running import results_of
from tests.support.patches import substitute

from relance.catalog.context import Context
from relance.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    OutcomeUnknownError,
    RelanceError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from relance.jobs import CleanUp, Compact
from relance.jobs.base import (
    CatalogRef,
    Effect,
    Estimate,
    Expected,
    Job,
    Name,
    Outcome,
    Result,
    Step,
    TablePlan,
)
from relance.jobs.engine import ATTEMPTS, Progress, maintain
from relance.jobs.progress import Display
from relance.jobs.runner import Done, Engine, Slice, ThreadRunner, choose, slices_of

PLANNED = Estimate(rows=3)
T0 = ("t0",)
TABLES = tuple((f"t{number}",) for number in range(10))


@dataclass(frozen=True)
class Part:
    number: int
    weight: float = 1.0

    def run(self, context: Context) -> int:
        if self.number < 0:
            raise ZeroDivisionError("unexpected")
        return self.number


@dataclass(frozen=True)
class Plan(TablePlan):
    tasks: tuple[Part, ...]
    job: Adding
    table: tuple[str, ...]
    estimate: Estimate = PLANNED

    def finish(self, context: Context, values: Sequence[int]) -> Effect:
        failures = self.job.failures.setdefault(self.table, [])
        if failures:
            raise failures.pop()
        return Effect(rows=sum(values), note=str(list(values)))


class Adding(Job):
    """Adds numbers; `failures` are raised by the commits of a table, one after another."""

    label = "adding"

    parts: int = 3
    idle: frozenset[tuple[str, ...]] = frozenset()
    surprising: frozenset[tuple[str, ...]] = frozenset()
    failures: Any = Field(default_factory=dict)

    def targets(self, context: Context) -> Sequence[tuple[str, ...]]:
        return TABLES

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        if table in self.idle:
            return None
        first = -1 if table in self.surprising else 0
        return Plan(tuple(Part(first + number) for number in range(self.parts)), self, table)


class AddingTogether(Adding):
    """Does the same with many tables in one call; `gives_plans` leaves them all to be done by themselves."""

    batches = True

    gives_plans: bool = False
    calls: Any = Field(default_factory=list)

    @classmethod
    def run_batch(cls, context: Context, steps: Sequence[Step]) -> Iterator[dict[int, Outcome]]:
        job = steps[0].job
        assert isinstance(job, AddingTogether)
        job.calls.append([step.table[0] for step in steps])
        yield {number: job.outcome(context, step) for number, step in enumerate(steps)}

    def outcome(self, context: Context, step: Step) -> Outcome:
        plan = step.plan(context)
        if plan is None or self.gives_plans:
            return plan
        try:
            return plan.finish(context, [task.run(context) for task in plan.tasks])
        except RelanceError as error:
            return error


class AddingOnce(AddingTogether):
    """Does four tables at a time, each only once; a group with an unexpected error ends without outcomes."""

    done: Any = Field(default_factory=set)

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        if table in self.done:
            raise TableNotFoundError(f"table id '{table[0]}'")
        return super().plan(context, table)

    @classmethod
    def run_batch(cls, context: Context, steps: Sequence[Step]) -> Iterator[dict[int, Outcome]]:
        for start in range(0, len(steps), 4):
            for outcomes in super().run_batch(context, steps[start : start + 4]):
                for number in outcomes:
                    cls._job(steps).done.add(steps[start + number].table)
                yield {start + number: outcome for number, outcome in outcomes.items()}

    @staticmethod
    def _job(steps: Sequence[Step]) -> AddingOnce:
        job = steps[0].job
        assert isinstance(job, AddingOnce)
        return job


class AddingAtOnce(Adding):
    """Does several tables at a time; each waits until as many have begun, when `meet` is given."""

    concurrency = 5

    meet: Any = None

    def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
        if self.meet is not None:
            self.meet.wait(timeout=30)
        return super().plan(context, table)


WAYS: dict[str, Callable[..., Adding]] = {
    "alone": Adding,
    "at once": AddingAtOnce,
    "together": AddingTogether,
    "plans": partial(AddingTogether, gives_plans=True),
}


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogRef:
    return CatalogRef((("root", str(tmp_path)),))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "engine.back_off", lambda attempt: None)


def _by_table(results: Sequence[Result]) -> dict[str, Result]:
    return {each.table[0]: each for each in results}


@pytest.mark.parametrize("adding", list(WAYS.values()), ids=list(WAYS))
@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["giant", "small"])
class TestRuns:
    def _run(
        self, catalog: CatalogRef, job: Adding, seconds: float, *, dry_run: bool = False
    ) -> dict[str, Result]:
        return _by_table(
            results_of(job, catalog, TABLES, ThreadRunner(2), oversized_seconds=seconds, dry_run=dry_run)
        )

    def test_every_table_gets_one_result_with_values_in_order(
        self, catalog: CatalogRef, seconds: float, adding: Callable[..., Adding]
    ) -> None:
        found = self._run(catalog, adding(parts=20, idle=frozenset({("t3",)})), seconds)
        assert found.pop("t3").effect is None
        assert len(found) == 9
        for result in found.values():
            assert result.effect is not None
            assert result.effect.note == str(list(range(20)))

    def test_conflicts_are_retried_up_to_a_limit(
        self, catalog: CatalogRef, seconds: float, adding: Callable[..., Adding]
    ) -> None:
        conflict, busy = ConcurrentModificationError("t"), ServiceUnavailableError("busy")
        job = adding(failures={("t1",): [conflict, busy], ("t2",): [conflict] * 100})
        found = self._run(catalog, job, seconds)
        assert (found["t1"].attempts, found["t1"].error) == (3, None)
        assert found["t2"].attempts == ATTEMPTS
        assert isinstance(found["t2"].error, ConcurrentModificationError)
        assert all(found[name].changed for name in found if name != "t2")

    def test_unknown_outcomes_and_unexpected_errors_are_not_retried(
        self, catalog: CatalogRef, seconds: float, adding: Callable[..., Adding]
    ) -> None:
        failures: dict[tuple[str, ...], list[Exception]] = {("t5",): [OutcomeUnknownError("lost")]}
        failures["t6",] = [KeyError("at the commit")]
        job = adding(surprising=frozenset({("t4",)}), failures=failures)
        found = self._run(catalog, job, seconds)
        assert "ZeroDivisionError: unexpected" in str(found["t4"].error)
        assert (found["t5"].attempts, type(found["t5"].error)) == (1, OutcomeUnknownError)
        assert "KeyError: 'at the commit'" in str(found["t6"].error)
        assert sum(each.changed for each in found.values()) == 7

    def test_dry_run_plans_and_changes_nothing(
        self, catalog: CatalogRef, seconds: float, adding: Callable[..., Adding]
    ) -> None:
        job = adding(failures={each: [ConcurrentModificationError("t")] for each in TABLES})
        found = self._run(catalog, job, seconds, dry_run=True)
        assert all(each.planned == PLANNED for each in found.values())
        assert all(len(left) == 1 for left in job.failures.values())


def test_maintenance_reports_are_picklable(catalog: CatalogRef) -> None:
    report = maintain(catalog, Adding(failures={("t1",): [OutcomeUnknownError("lost")]}))
    assert str(pickle.loads(pickle.dumps(report)).failed[0].error) == str(report.failed[0].error)


def test_tables_of_a_batch_are_retried_as_a_batch(catalog: CatalogRef) -> None:
    conflict = ConcurrentModificationError("t")
    job = AddingTogether(failures={("t1",): [conflict], ("t4",): [conflict, conflict]})
    report = maintain(catalog, job)
    assert not report.failed
    assert job.calls == [[table[0] for table in TABLES], ["t1", "t4"], ["t4"]]


def test_one_worker_visits_several_tables_of_a_waiting_job(catalog: CatalogRef) -> None:
    runner = ThreadRunner(1)
    job = AddingAtOnce(meet=threading.Barrier(5))
    results = results_of(job, catalog, TABLES, runner)
    assert [each.table for each in results] == list(TABLES)
    assert all(each.changed for each in results)


def test_workers_clean_up_several_tables_at_a_time_and_compact_one() -> None:
    assert CleanUp.concurrency > 1
    assert Compact.concurrency == 1


def test_failed_batch_is_retried_table_by_table(catalog: CatalogRef) -> None:
    job = AddingTogether(surprising=frozenset({("t4",)}))
    report = maintain(catalog, job)
    assert [each.table for each in report.failed] == [("t4",)]
    assert len(report.changed) == len(TABLES) - 1
    assert len(job.calls) == 1


def test_unexpected_error_in_one_group_keeps_the_outcomes_of_the_others(catalog: CatalogRef) -> None:
    job = AddingOnce(surprising=frozenset({("t5",)}))
    report = maintain(catalog, job)
    assert [(each.table, type(each.error)) for each in report.failed] == [(("t5",), InternalError)]
    assert "ZeroDivisionError: unexpected" in str(report.failed[0].error)
    assert [each.effect.rows for each in report.results if each.effect] == [3] * (len(TABLES) - 1)
    assert job.calls == [["t0", "t1", "t2", "t3"], ["t4", "t5", "t6", "t7"]]


def test_table_that_a_group_leaves_out_is_done_by_itself(catalog: CatalogRef) -> None:
    failures: dict[tuple[str, ...], list[Exception]] = {("t1",): [KeyError("at the commit")]}
    job = AddingTogether(gives_plans=True, failures=failures)
    report = maintain(catalog, job)
    assert [each.table for each in report.failed] == [("t1",)]
    assert len(report.changed) == len(TABLES) - 1
    assert len(job.calls) == 1


def test_slices_contain_every_task_once_and_group_small_ones() -> None:
    small = slices_of([Part(each, 1 / 64) for each in range(640)], slots=2)
    assert len(small) == 10
    assert [number for each in small for number, _ in each.tasks] == list(range(640))
    heavy = slices_of([Part(0, 0.01), Part(1, 30.0), Part(2, 0.01), Part(3, 30.0)], slots=2)
    assert [len(each.tasks) for each in heavy] == [1, 1, 1, 1]
    few = slices_of([Part(each, 0.08) for each in range(16)], slots=2)
    assert [len(each.tasks) for each in few] == [8, 8]  # not 12 and 4
    assert len(slices_of([Part(each, 0.08) for each in range(16)], slots=64)) == 2  # worth their overhead
    assert slices_of([], slots=2) == []


def test_giant_table_that_shrank_before_a_retry_is_still_done(catalog: CatalogRef) -> None:
    class Shrinking(Adding):
        def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan:
            is_first = table not in self.failures
            return Plan(tuple(Part(each) for each in range(3 * is_first)), self, table)

    runner = ThreadRunner(2)
    job = Shrinking()

    def fail_once() -> None:
        job.failures.update({each: [ConcurrentModificationError("t")] for each in TABLES[:2]})

    def report(seen: Progress) -> None:
        if seen.all_tasks and not job.failures:
            fail_once()

    results = results_of(job, catalog, TABLES[:2], runner, oversized_seconds=0.0, progress=report)
    found = _by_table(results)
    assert {name: (each.attempts, each.changed) for name, each in found.items()} == {
        "t0": (2, True),
        "t1": (2, True),
    }


def test_light_tasks_of_a_giant_table_are_spread_over_the_slots(catalog: CatalogRef) -> None:
    class Counting(ThreadRunner):
        def run(self, catalog: CatalogRef, slices: Sequence[Slice], *, what: str) -> Iterator[Done]:
            sizes.append([len(each.tasks) for each in slices])
            return super().run(catalog, slices, what=what)

    class Light(Adding):
        def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
            return Plan(tuple(Part(each, weight=0.03) for each in range(16)), self, table)

    sizes: list[list[int]] = []
    results_of(Light(), catalog, TABLES[:1], ThreadRunner(1), Counting(2), oversized_seconds=0.0)
    assert len(sizes[0]) >= 2
    assert max(sizes[0]) <= 8


def test_runner_does_not_retain_values_it_has_yielded(catalog: CatalogRef) -> None:
    class Answer:
        weight = 6.0

        def run(self, context: Context) -> Answer:
            return Answer()

    answers: weakref.WeakSet[Answer] = weakref.WeakSet()
    most = 0
    runner = ThreadRunner(1)
    slices = slices_of([Answer() for _ in range(50)], slots=1)
    for done in runner.run(catalog, slices, what="answers"):
        answers.add(done.value)
        most = max(most, len(answers))
    assert most < 5


@dataclass(frozen=True)
class Refusing:
    """Tells its number, or fails."""

    number: int
    seen: list[int]
    weight: float

    def run(self, context: Context) -> int:
        self.seen.append(self.number)
        if self.number == 1:
            raise InvalidInputError("not this one")
        return self.number


@dataclass(frozen=True)
class Writing(TablePlan):
    """A plan whose tasks write something: what ended well is thrown away when another one fails."""

    tasks: tuple[Refusing, ...]
    thrown_away: list[int]
    estimate: Estimate = PLANNED

    def finish(self, context: Context, values: Sequence[int]) -> Effect:
        raise AssertionError("a task failed")

    def discard(self, context: Context, values: Sequence[int]) -> None:
        self.thrown_away.extend(values)


@pytest.mark.parametrize("weight", [0.01, 1.0])
def test_files_written_by_other_tasks_are_discarded_when_a_task_fails(
    catalog: CatalogRef, weight: float
) -> None:
    seen: list[int] = []
    plan = Writing(tuple(Refusing(each, seen, weight) for each in range(4)), [])

    class WritingJob(Job):
        label = "writing"

        def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan | None:
            return plan

    (result,) = results_of(WritingJob(), catalog, [T0], ThreadRunner(1))
    assert isinstance(result.error, InvalidInputError)
    assert sorted(plan.thrown_away) == [each for each in sorted(seen) if each != 1]
    if weight < 0.1:  # one by one, and none after the one that fails
        assert seen == [0, 1]


def test_giant_tables_are_processed_in_turns(catalog: CatalogRef) -> None:
    order: list[str] = []
    lock = threading.Lock()

    @dataclass(frozen=True)
    class Noting:
        table: str
        weight: float = 6.0

        def run(self, context: Context) -> int:
            with lock:
                order.append(self.table)
            return 0

    class TwoGiants(Adding):
        def plan(self, context: Context, table: Name, expect: Expected | None = None) -> TablePlan:
            return Plan(tuple(Noting(table[0]) for _ in range(4)), self, table)  # type: ignore[misc]  # other tasks

    runner = ThreadRunner(1)
    results_of(TwoGiants(), catalog, [("a",), ("b",)], runner)
    assert order == ["a", "b"] * 4


class TestEngineChoice:
    def test_spark_is_chosen_only_when_it_adds_capacity(self) -> None:
        small, big = ThreadRunner(2), ThreadRunner(8)
        assert choose(Engine.AUTO, None, tables=5).why.startswith("local")
        assert choose(Engine.AUTO, small, tables=5000, local=ThreadRunner(2)).why.startswith(
            "local: Spark has no more slots (2)"
        )
        few = choose(Engine.AUTO, big, tables=5, local=small)
        assert (few.table_runner, few.task_runner) == (small, big)
        many = choose(Engine.AUTO, big, tables=5000, local=small)
        assert (many.table_runner, many.task_runner) == (big, big)
        assert choose(Engine.LOCAL, big, tables=5000, local=small).task_runner is small
        with pytest.raises(InvalidInputError, match="Spark session"):
            choose(Engine.SPARK, None, tables=5)

    def test_unknown_engines_and_duplicate_tables_are_refused(self, catalog: CatalogRef) -> None:
        with pytest.raises(InvalidInputError, match="auto, local, spark"):
            maintain(catalog, Adding(), engine="ray")
        with pytest.raises(InvalidInputError, match="twice"):
            maintain(catalog, Adding(), [["a"], ["a"]])


class TestDisplay:
    def test_progress_lines_are_throttled_and_the_last_one_is_printed(self) -> None:
        stream, clock = io.StringIO(), iter(range(0, 100, 4))
        display = Display(stream, lambda: float(next(clock)))
        for done in range(6):
            display(Progress("adding", done, 5, 1))
        assert stream.getvalue().splitlines()[0] == "adding: 0 of 5 tables, 1 failed"
        assert stream.getvalue().splitlines()[-1] == "adding: 5 of 5 tables, 1 failed"
        assert len(stream.getvalue().splitlines()) < 6

    def test_terminal_gets_a_progress_bar(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        stream = Terminal()
        Display(stream)(Progress("adding", 1, 2, 0, tasks=3, all_tasks=6))
        assert stream.getvalue().startswith("\r[############............]  50% adding: 1 of 2 tables")
