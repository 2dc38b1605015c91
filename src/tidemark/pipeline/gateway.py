"""Starts the Java process that PySpark talks to, and ends it.

Spark's own launcher asks for a module that small Java runtimes leave out, and takes two more Java
processes and a shell to start one. So the process is started here, with the arguments the launcher
would give it less that module. It reads from a pipe whose other end only this process holds: when
this process ends, however it ends, the pipe is closed and Java exits.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from pyspark.find_spark_home import _find_spark_home

from tidemark.pipeline.class_archive import ARCHIVING, sharing
from tidemark.pipeline.errors import SparkUnavailable
from tidemark.pipeline.java import Java
from tidemark.pipeline.session_options import is_local

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0
# When it writes an archive of its classes before it ends.
ARCHIVING_TIMEOUT_S: Final = 300.0

_POLL_S = 0.01
_SAID_LINES = 5
_SCALA_VERSION = "2.13"
_LOGGING = Path(__file__).with_name("log4j2.properties")
# The packages of Java that Spark reaches into, as in its own `JavaModuleOptions`.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_FIXED = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Djava.awt.headless=true",
)
# From the version that complains without them.
_SILENCING: Final = (
    (24, "--sun-misc-unsafe-memory-access=allow"),
    (22, "--enable-native-access=ALL-UNNAMED"),
)
# The work is done in Python, Arrow and DuckDB, and on a cluster elsewhere; what is left for this
# Java is small plans and moving rows. Its optimising compiler uses more than it saves.
_QUICK_COMPILER = (
    "-XX:TieredStopAtLevel=1",
    # As much as with that compiler. By default it would be a fifth, which Spark fills in minutes:
    # then Java throws away what it has compiled, and compiles it again.
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)


@dataclass(frozen=True)
class Gateway:
    """A Java process that waits for PySpark on a port of this machine."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    stop_timeout_s: float = STOP_TIMEOUT_S

    @contextmanager
    def offered(self) -> Iterator[None]:
        """While it lasts, PySpark takes this process instead of starting one."""
        offered = {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}
        os.environ.update(offered)
        try:
            yield
        finally:
            # The secret is for this process and not for its children.
            for name in offered:
                os.environ.pop(name, None)

    def stop(self) -> None:
        """Let Java exit; end it if it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_gateway(java: Java, options: Mapping[str, str], *, log_dir: Path) -> Gateway:
    """Start Java and wait until it listens. What it says outside its log is in `java.out`."""
    said = log_dir / "java.out"
    with tempfile.TemporaryDirectory(prefix="tidemark-spark-") as private, said.open("wb") as out:
        properties = Path(private) / "spark.properties"
        properties.write_text(_as_properties(options), encoding="utf-8")
        connection = Path(private) / "connection"
        process = subprocess.Popen(
            [
                *_java_command(java, options, log_dir / "spark.log"),
                "org.apache.spark.deploy.SparkSubmit",
                # In a file that only this user can read, because options may hold passwords.
                "--properties-file",
                str(properties),
                "--load-spark-defaults",
                "pyspark-shell",
            ],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_environment(java, options, connection),
            # Ctrl-C is for this process to hear; it then stops Java in order.
            start_new_session=True,
        )
        gateway: Gateway | None = None
        try:
            port, secret = _read_connection(process, connection, said, options["spark.master"])
            gateway = Gateway(process, port, secret, _stop_timeout_s(options))
        finally:
            if gateway is None:
                process.kill()
                process.wait()
    return gateway


def _java_command(java: Java, options: Mapping[str, str], log: Path) -> list[str]:
    return [
        str(java.program),
        "-cp",
        os.pathsep.join(_classpath(options)),
        f"-Xmx{options.get('spark.driver.memory', '1g')}",
        *_FIXED,
        *(option for version, option in _SILENCING if java.version >= version),
        *_QUICK_COMPILER,
        *sharing(java),
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        f"-Dtidemark.spark.log={log}",
        # Last, because of two settings of one thing Java takes the later.
        *shlex.split(options.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(options.get("spark.driver.extraJavaOptions", "")),
    ]


def _stop_timeout_s(options: Mapping[str, str]) -> float:
    archives = ARCHIVING in options.get("spark.driver.extraJavaOptions", "")
    return ARCHIVING_TIMEOUT_S if archives else STOP_TIMEOUT_S


def _classpath(options: Mapping[str, str]) -> list[str]:
    home = Path(_find_spark_home())
    entries = [
        options.get("spark.driver.extraClassPath", ""),
        os.environ.get("SPARK_CONF_DIR", str(home / "conf")),
        str(home / "jars" / "*"),
        os.environ.get("HADOOP_CONF_DIR", ""),
        os.environ.get("YARN_CONF_DIR", ""),
    ]
    return [entry for entry in entries if entry]


def _environment(java: Java, options: Mapping[str, str], connection: Path) -> dict[str, str]:
    environ = dict(os.environ)
    environ["JAVA_HOME"] = str(java.home)
    environ["SPARK_HOME"] = home = _find_spark_home()
    if is_local(options["spark.master"]) and Path(home) == Path(pyspark.__file__).parent:
        # With a home, Spark has its Python processes load PySpark from an archive of sources there,
        # which each of them compiles anew: one takes twice as long to start. Without, they load
        # what this process has loaded.
        del environ["SPARK_HOME"]
        environ.setdefault("SPARK_CONF_DIR", str(Path(home) / "conf"))
    environ["SPARK_CONNECT_MODE"] = "0"
    # Spark's scripts say it, and executors that Spark starts on this machine need it.
    environ.setdefault("SPARK_SCALA_VERSION", _SCALA_VERSION)
    environ["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(connection)
    # Workers on this machine import what this process imports, from where it does.
    environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    if "spark.driver.bindAddress" in options:
        # Else Spark looks up the name of this machine, which can take seconds and can fail.
        environ.setdefault("SPARK_LOCAL_IP", options["spark.driver.bindAddress"])
    if "spark.driver.extraLibraryPath" in options:
        places = [options["spark.driver.extraLibraryPath"], environ.get("LD_LIBRARY_PATH", "")]
        environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, places))
    return environ


def _as_properties(options: Mapping[str, str]) -> str:
    return "".join(f"{name}={_escaped(value)}\n" for name, value in options.items())


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t", "\f") else escaped


def _read_connection(
    process: subprocess.Popen[bytes], connection: Path, said: Path, master: str
) -> tuple[int, str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    # Java writes it aside and renames it, so what is there is whole.
    while not connection.exists():
        if process.poll() is not None:
            raise SparkUnavailable(
                f"Spark did not start on {master}: Java exited with {process.returncode}"
                f"{_beginning(said)}",
                hint="Look at spark.master, spark.options and spark.java_home; all that Java said"
                f" is in {said}, and what Spark logged beside it.",
            )
        if time.monotonic() > deadline:
            raise SparkUnavailable(
                f"Spark did not start on {master} in {START_TIMEOUT_S:.0f} s{_beginning(said)}",
                hint=f"Look at {said} and the log beside it, and at the load of this machine.",
            )
        time.sleep(_POLL_S)
    content = connection.read_bytes()
    (port,) = struct.unpack_from("!i", content)
    (length,) = struct.unpack_from("!i", content, 4)
    return port, content[8 : 8 + length].decode()


def _beginning(said: Path) -> str:
    """The first that Java said, without the calls it was in."""
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip() for line in lines if not line.startswith("\tat ")][:_SAID_LINES]
    return ": " + "\n".join(told) if told else ""
