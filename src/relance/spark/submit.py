"""Policies on a cluster, without the command line of Relance: what jobs.py does for spark-submit.

Answers with one line of JSON on standard output; progress goes to standard error. The exit codes are those of
the command line, in relance.exits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from relance.errors import InvalidInputError, RelanceError
from relance.exits import Exit
from relance.identifiers import parse_id
from relance.jobs.progress import Display
from relance.jobs.runner import Engine
from relance.namespace import DirectoryNamespace
from relance.policy import planning, running
from relance.policy.actions import Unknown
from relance.policy.model import Policy
from relance.policy.parse import parse_policy
from relance.policy.planning import load_plan, save_plan
from relance.policy.records import RunRecord, RunState
from relance.spark.policy import runner_for
from relance.spark.session import settings
from relance.spark.session_properties import catalog_properties
from relance.units import parse_duration

_CODES: dict[RunState | Unknown, Exit] = {RunState.FAILED: Exit.FAILED, RunState.REFUSED: Exit.REFUSED}


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments ask for, and return how the process is to end."""
    given = _parser().parse_args(arguments)
    spark = _session()
    try:
        record = _do(spark, given)
    except RelanceError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code_of(error)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(_answer(record)) + "\n")
    return exit_code_of(record)


def exit_code_of(ended: RunRecord | RelanceError) -> int:
    """Return the exit code for the record of a run, or for the error that kept it from starting."""
    return ended.exit_code if isinstance(ended, RelanceError) else _CODES.get(ended.state, Exit.OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jobs.py", description="Run a policy over a lake on Spark.")
    actions = parser.add_subparsers(dest="action", required=True)
    plan = actions.add_parser("plan", help="show what a run would do")
    plan.add_argument("--save", metavar="FILE", help="save the plan to run it later")
    run = actions.add_parser("run", help="run the policy")
    for each in (plan, run):
        each.add_argument("policy", metavar="POLICY", help="policy file, or a saved plan (.json) for `run`")
        each.add_argument("--only", action="append", metavar="TABLE", help="only this table; repeatable")
    resume = actions.add_parser("resume", help="resume an interrupted run")
    resume.add_argument("run", nargs="?", metavar="RUN", help="name of the run (default: the most recent)")
    for each in (plan, run, resume):
        each.add_argument("--root", help="root of the lake (default: spark.relance.root)")
        each.add_argument("--engine", choices=list(Engine), default=Engine.AUTO, help="where to run")
    for each in (run, resume):
        each.add_argument(
            "--wait", type=_span, metavar="TIME", help="wait this long for another run to end, such as 30m"
        )
    return parser


def _session() -> SparkSession:
    """Return the session of the submitted application, with what Lance needs where nothing else is set."""
    builder = SparkSession.builder
    for name, value in settings(local=False).items():
        if name.startswith("spark.sql."):  # all others were decided when the application was submitted
            builder = builder.config(name, value)
    return builder.getOrCreate()


def _do(spark: SparkSession, given: argparse.Namespace) -> RunRecord:
    catalog = DirectoryNamespace(clock=None, **catalog_properties(spark, given.root, None))
    runner, progress = runner_for(spark, given.engine), Display()
    if given.action == "resume":
        return running.resume(
            catalog, given.run, engine=given.engine, spark=runner, wait=given.wait, progress=progress
        )
    only = None if not given.only else [parse_id(each) for each in given.only]
    if given.action == "plan":
        made = planning.plan(
            catalog, _policy(given.policy), only=only, engine=given.engine, spark=runner, progress=progress
        )
        if given.save:
            save_plan(made, given.save)
        return made.record
    if given.policy.endswith(".json"):
        if only is not None:
            raise InvalidInputError("a saved plan runs unchanged: leave out --only")
        saved = load_plan(given.policy)
        return running.run(
            catalog, saved, engine=given.engine, spark=runner, wait=given.wait, progress=progress
        )
    return running.run_policy(
        catalog,
        _policy(given.policy),
        only=only,
        engine=given.engine,
        spark=runner,
        wait=given.wait,
        progress=progress,
    )


def _policy(file: str) -> Policy:
    try:
        text = Path(file).read_bytes()
    except OSError as cause:
        raise InvalidInputError(f"cannot read policy {file!r}: {cause.strerror}") from cause
    return parse_policy(text, file=file)


def _span(text: str) -> timedelta:
    try:
        return parse_duration(text, what="it")
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(error.detail) from None


def _answer(record: RunRecord) -> dict[str, object]:
    outcomes = Counter(each.outcome.value for each in record.actions)
    return {
        "run": record.run,
        "state": record.state.value,
        "engine": record.engine,
        "actions": dict(sorted(outcomes.items())),
        "message": record.message,
    }
