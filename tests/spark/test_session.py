"""Sessions: what they set, what they refuse, and what they hide."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.paths import REPOSITORY

from relance.errors import InvalidInputError, UnsupportedOperationError
from relance.spark import requirements
from relance.spark.session import REDACTED, is_local, session, settings
from relance.spark.session_properties import CONF_PREFIX
from relance.spark.spark_home import make_home, without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_SCRIPT = REPOSITORY / "scripts" / "java.sh"
FakeJava = Callable[[str], Path]


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Return a maker of folders with a `java` that claims a version."""

    def make(version: str) -> Path:
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        _program(folder / "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")
        return folder

    return make


def _program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_cluster_settings_leave_addresses_and_memory_alone() -> None:
    anywhere, local = settings(local=False), settings(local=True)
    assert anywhere.items() <= local.items()
    added = set(local) - set(anywhere)
    assert {"spark.driver.host", "spark.driver.memory", "spark.ui.enabled"} <= added
    assert "spark.sql.session.timeZone" not in local
    settings(local=True).clear()
    assert settings(local=True) == local


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_only_single_process_masters_are_local(master: str, expected: bool) -> None:
    assert is_local(master) is expected


@pytest.mark.deep
def test_session_has_the_settings_and_runs_this_python(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    changed_for_tests = {"spark.sql.shuffle.partitions"}
    java = settings(local=True)["spark.driver.extraJavaOptions"]
    assert set(java.split()) <= set(conf.get("spark.driver.extraJavaOptions", "").split())
    expected = {
        name: value
        for name, value in settings(local=True).items()
        if name not in changed_for_tests and not name.endswith(".extraJavaOptions")
    }
    assert {name: conf.get(name) for name in expected} == expected
    ran_by, pyspark_from = (
        spark.sparkContext.parallelize([0], 1)
        .map(lambda _: (sys.executable, sys.modules["pyspark"].__file__ or ""))
        .first()
    )
    assert Path(ran_by) == Path(os.environ["PYSPARK_PYTHON"])
    assert "pyspark.zip" not in pyspark_from, "workers should use the installed package with its bytecode"
    assert "relance" not in os.environ.get("SPARK_HOME", ""), "only Spark itself should see the other home"


@pytest.mark.deep
def test_second_call_returns_the_running_session_with_a_new_root(spark: SparkSession) -> None:
    again = session(
        "another name",
        master="local[2]",
        root="/lake",
        properties={"manifest_enabled": "true"},
        conf={"spark.sql.shuffle.partitions": "2"},
    )
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get(f"{CONF_PREFIX}root") == "/lake"
    assert again.conf.get(f"{CONF_PREFIX}manifest_enabled") == "true"
    session(master="local[2]", root="/other", conf={"spark.sql.shuffle.partitions": "2"})
    kept = {name: value for name, value in spark.conf.getAll.items() if name.startswith(CONF_PREFIX)}
    assert kept == {f"{CONF_PREFIX}root": "/other"}, "properties of one root are not for another"
    spark.conf.unset(f"{CONF_PREFIX}root")


@pytest.mark.deep
def test_conflicting_static_settings_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"spark\.driver\.memory is '2g', not '3g'.*stop\(\)"):
        session(master="local[2]", conf={"spark.driver.memory": "3g"})
    with pytest.raises(InvalidInputError, match=r"spark\.master is 'local\[2\]', not 'local\[1\]'"):
        session(master="local[1]")
    with pytest.raises(InvalidInputError) as refused:
        session(master="local[2]", conf={"spark.ssl.keyPassword": "do-not-show"})
    assert "spark.ssl.keyPassword" in str(refused.value)
    assert "do-not-show" not in str(refused.value)


def test_properties_that_are_not_strings_are_refused(java: None) -> None:
    with pytest.raises(InvalidInputError, match="retention"):
        session(properties={"retention": 7})  # type: ignore[dict-item]  # what a caller without types does


@pytest.mark.deep
def test_spark_redacts_storage_keys(spark: SparkSession) -> None:
    secrets = [
        "storage.secret_access_key",
        "storage.aws_access_key_id",
        "storage.session_token",
        "storage.account_key",
        "storage.azure_storage_sas_key",
        "storage.google_service_account",
    ]
    for name in secrets:
        spark.conf.set(f"{CONF_PREFIX}{name}", "do-not-show")
    shown = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    for name in secrets:
        spark.conf.unset(f"{CONF_PREFIX}{name}")
    assert {f"{CONF_PREFIX}{name}" for name in secrets} <= set(shown)
    assert "do-not-show" not in shown.values()
    # The page of the environment shows the settings of the context, hidden by the same pattern.
    assert spark.sparkContext.getConf().get("spark.redaction.regex") == REDACTED


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16"])
def test_old_java_is_refused(fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(version)))
    with pytest.raises(UnsupportedOperationError, match=r"needs Java 17 .*openjdk-17-jre-headless"):
        requirements.check_java()


def test_java_home_takes_precedence_over_the_path(
    fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_java("11.0.1")))
    monkeypatch.setenv("JAVA_HOME", str(fake_java("21").parent))
    requirements.check_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UnsupportedOperationError, match="there is none"):
        requirements.check_java()


def test_missing_or_broken_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedOperationError, match="there is none on PATH"):
        requirements.check_java()
    _program(tmp_path / "java", "echo oops >&2; exit 1")
    with pytest.raises(UnsupportedOperationError, match="does not run: 'oops'"):
        requirements.check_java()


def test_old_or_missing_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.0.1")
    with pytest.raises(UnsupportedOperationError, match=r"4\.1 or newer, but found 4\.0\.1: pip install"):
        session()
    monkeypatch.setitem(sys.modules, "pyspark.version", None)
    with pytest.raises(UnsupportedOperationError, match=r"pip install 'relance\[spark\]'"):
        session()


def test_import_without_pyspark_says_what_to_install() -> None:
    script = "import sys; sys.modules['pyspark'] = None; import relance.spark"
    failed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "UnsupportedOperationError" in failed.stderr
    assert "pip install 'relance[spark]'" in failed.stderr


def test_spark_home_without_archives_is_created_once_and_optional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark"
    first = make_home(package, tmp_path / "cache")
    assert make_home(package, tmp_path / "cache") == first
    assert sorted(each.name for each in first.iterdir()) == ["RELEASE", "bin", "jars", "sbin"]
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(first / "RELEASE"))  # a file: nothing can be made in it
    with without_archives():
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/mine")
    with without_archives():
        assert os.environ["SPARK_HOME"] == "/mine"


def _run_java_script(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    tools = f"{path}:{path.parent / 'tools'}"
    return subprocess.run(
        ["/bin/sh", JAVA_SCRIPT],
        env={"PATH": tools, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Make a folder with the few programs that the script needs, and return an empty one beside it."""
    (tmp_path / "tools").mkdir()
    for name in ("sed", "head"):
        found = next(Path(folder, name) for folder in ("/usr/bin", "/bin") if Path(folder, name).exists())
        (tmp_path / "tools" / name).symlink_to(found)
    (tmp_path / "path").mkdir()
    return tmp_path / "path"


def test_java_script_accepts_a_new_java_silently(tools: Path) -> None:
    _program(tools / "java", "echo 'openjdk version \"21.0.2\"' >&2")
    finished = _run_java_script(tools)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_java_script_says_what_to_install_without_java(tools: Path) -> None:
    _program(tools / "id", "echo 1000")
    _program(tools / "apt-get", "echo must not run; exit 1")
    finished = _run_java_script(tools)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "there is none" in finished.stderr
    assert "openjdk-17-jre-headless" in finished.stderr


def test_java_script_installs_java_as_root(tools: Path) -> None:
    _program(tools / "java", "echo 'java version \"1.8.0\"' >&2")
    _program(tools / "id", "echo 0")
    newer = "printf '#!/bin/sh\\necho version \\\\\"17.0.1\\\\\"\\n'"
    _program(tools / "apt-get", f'echo noise; [ "$1" = install ] && {newer} > {tools}/java')
    finished = _run_java_script(tools)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.strip() == "installing openjdk-17-jre-headless, which Spark needs"


def test_java_script_says_which_java_is_too_old(tools: Path) -> None:
    _program(tools / "java", "echo 'java version \"1.8.0\"' >&2")
    _program(tools / "id", "echo 0")
    _program(tools / "apt-get", "exit 1")
    finished = _run_java_script(tools)
    assert finished.returncode == 1
    assert "this is Java 8" in finished.stderr
