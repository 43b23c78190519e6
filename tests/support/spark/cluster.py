"""A standalone Spark cluster on loopback: one master, and workers with an address each.

Only one Spark context can live in a Python process, so jobs for the cluster run in drivers of their own:
scripts or modules that call `driver_session`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.paths import REPOSITORY
from tests.support.ports import free_port

from relance.spark.session import session
from relance.spark.spark_home import make_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
URL_VARIABLE = "RELANCE_TEST_CLUSTER"
_EXECUTOR = "CoarseGrainedExecutorBackend"
CORES = 4
"""Of each executor. A task takes all of them, unless its driver says `spark_task_cpus="1"`."""
START_SECONDS = 240
"""Much more than it takes, for machines that do other work too."""


class ClusterError(RuntimeError):
    """The cluster did not do what was asked in time."""


def driver_session(app_name: str = "driver", **conf: str) -> SparkSession:
    """Return the session of a driver that `Cluster.run` or `Cluster.start` has started.

    Settings are given with underscores for dots: `spark_task_maxFailures="8"`.
    """
    loopback = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executor.cores": str(CORES),
        "spark.task.cpus": str(CORES),
        "spark.cores.max": str(CORES * len(WORKER_HOSTS)),
    }
    given = {name.replace("_", "."): value for name, value in conf.items()}
    return session(app_name, master=os.environ[URL_VARIABLE], conf={**loopback, **given})


@dataclass(slots=True)
class Driver:
    """A driver that takes requests and gives answers, a line of JSON each."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def ask(self, what: str, **details: Any) -> None:
        """Have it do something; its answer is to be fetched before it is asked again."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"what": what, **details}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait until it has done what it was asked, which must have gone well."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        told: dict[str, Any] = json.loads(line) if line else {"error": self.log.read_text()[-3000:]}
        assert "error" not in told, told["error"]
        return told

    def kill(self) -> None:
        """End it with no chance to clean up: its Java process first, which would abort what is under way."""
        for pid in (*_children(self.process.pid), self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Let it stop its session, as there is nothing more to ask."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)


@dataclass(slots=True)
class Cluster:
    """A running cluster; it ends only processes that it started, and their children."""

    folder: Path
    home: Path
    port: int
    page: int
    master: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address that drivers use."""
        return f"spark://{HOST}:{self.port}"

    def start_all(self) -> None:
        """Start the master and all workers, and wait until they know each other."""
        flags = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.page)]
        self.master = self._launch("org.apache.spark.deploy.master.Master", flags, HOST)
        self.wait("master", lambda: self.state() is not None)
        for host in WORKER_HOSTS:
            self._launch_worker(host)
        self._wait_for_workers()

    def state(self) -> dict[str, Any] | None:
        """Return what the master says about its workers and applications, or None while it is not up."""
        try:
            with urlopen(f"http://{HOST}:{self.page}/json/", timeout=5) as answer:
                told: dict[str, Any] = json.load(answer)
                return told
        except (URLError, OSError, json.JSONDecodeError):
            return None  # while it starts, any address gives its front page

    def worker_pids(self) -> dict[str, int]:
        """Return the process of each worker that is running, by host."""
        return {host: process.pid for host, process in self.workers.items() if process.poll() is None}

    def executor_pids(self) -> dict[str, tuple[int, ...]]:
        """Return the processes of the executors that each worker has started and that run, by host."""
        return {
            host: tuple(each for each in _children(pid) if _EXECUTOR in _command(each))
            for host, pid in self.worker_pids().items()
        }

    def wait_for_executors(self, number: int = len(WORKER_HOSTS), seconds: float = START_SECONDS) -> None:
        """Wait until so many executors are running."""
        self.wait(
            f"{number} executors", lambda: sum(map(len, self.executor_pids().values())) >= number, seconds
        )

    def kill_executor(self, host: str) -> int:
        """Kill the executor of a host at once and return its process number."""
        pids = self.executor_pids()[host]
        if not pids:
            raise ClusterError(f"no executor runs on {host}")
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]

    def kill_worker(self, host: str) -> int:
        """Kill the worker of a host and its executors at once, as if the machine had failed."""
        process = self.workers[host]
        for pid in (process.pid, *_children(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        return process.pid

    def restart_worker(self, host: str) -> None:
        """Start the worker of a host again after it was killed, and wait until the master knows it."""
        if self.workers[host].poll() is None:
            raise ClusterError(f"the worker on {host} is still running")
        self._launch_worker(host)
        self._wait_for_workers()

    def restore(self) -> None:
        """Bring back workers that a test has killed."""
        for host, process in self.workers.items():
            if process.poll() is not None:
                self.restart_worker(host)

    def start(self, script_or_module: str | Path, *arguments: str) -> subprocess.Popen[str]:
        """Start a driver whose output is piped: a file that ends in .py, or a module."""
        process = subprocess.Popen(
            [*_python(script_or_module), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self._environment(HOST) | {URL_VARIABLE: self.url},
        )
        self.drivers.append(process)
        return process

    def converse(self, module: str) -> Driver:
        """Start a driver that does what it is asked, one thing after another."""
        log = self.folder / f"driver-{len(self.drivers)}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                _python(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env=self._environment(HOST) | {URL_VARIABLE: self.url},
            )
        self.drivers.append(process)
        return Driver(process, log)

    def run(
        self, script_or_module: str | Path, *arguments: str, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run a driver to its end and return what it printed."""
        process = self.start(script_or_module, *arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            process.kill()
            raise ClusterError(
                f"{script_or_module} took over {timeout} s: {process.communicate()[1]}"
            ) from late
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def stop(self) -> None:
        """End the drivers, workers and the master."""
        for driver in self.drivers:
            _end(driver)
        for worker in self.workers.values():
            _end(worker)
        if self.master is not None:
            _end(self.master)

    def _launch_worker(self, host: str) -> None:
        where = ["--host", host, "--webui-port", "0", "-d", str(self.folder / f"worker-{host}")]
        flags = [*where, "-c", str(2 * CORES), "-m", "4g", self.url]  # for two drivers beside each other
        self.workers[host] = self._launch("org.apache.spark.deploy.worker.Worker", flags, host)

    def _launch(self, main_class: str, flags: list[str], host: str) -> subprocess.Popen[bytes]:
        command = [str(self.home / "bin" / "spark-class"), main_class, *flags]
        with Path(self.folder, f"{host}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(host),
            )

    def _environment(self, host: str) -> dict[str, str]:
        # Executors inherit the path from their worker: jobs may then use modules of the tests.
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
        return os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "512m",
            # It would listen on a port that is always the same.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": path,
        }

    def _wait_for_workers(self) -> None:
        def all_alive() -> bool:
            workers = (self.state() or {"workers": []})["workers"]
            return [each["state"] for each in workers].count("ALIVE") == len(self.workers)

        self.wait("workers", all_alive)

    def wait(self, what: str, is_so: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until something is so, and show the logs of the cluster when it does not come."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"{log.name}: {log.read_text()[-1500:]}" for log in self.folder.glob("*.log")
                )
                raise ClusterError(f"waited {seconds} s for {what}\n{logs}")
            time.sleep(0.1)


def answer_of(driver: subprocess.Popen[str], seconds: float = 500) -> dict[str, Any]:
    """Wait for the end of a driver, which must be a good one, and return the JSON that it printed last."""
    out, err = driver.communicate(timeout=seconds)
    assert driver.returncode == 0, err[-3000:]
    told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return told


@contextmanager
def start_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster that keeps all its files in a folder for the duration of the block."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (folder / "conf").mkdir()
    cluster = Cluster(folder, make_home(Path(spec.origin).parent, folder), free_port(), free_port())
    try:
        cluster.start_all()
        yield cluster
    finally:
        cluster.stop()


def _python(script_or_module: str | Path) -> list[str]:
    name = str(script_or_module)
    return [sys.executable, name] if name.endswith(".py") else [sys.executable, "-m", name]


def _children(pid: int) -> tuple[int, ...]:
    """Return the processes that any thread of a process has started; on Linux."""
    try:
        lists = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return ()  # a thread or the whole process has just ended
    return tuple(int(child) for each in lists for child in each.split())


def _command(pid: int) -> str:
    """Return the command line of a process, nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
