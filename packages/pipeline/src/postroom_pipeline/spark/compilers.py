"""What Java's second compiler leaves to the first: code that does not run long enough for its work to pay off.

The second compiler takes about ten times the CPU for a method, and the method then takes a third to a half. Java reads
which methods it leaves out from files beside this one. Nothing else depends on them: a Java that knows no such choice
compiles as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Code that prepares plans: the parsers and compilers of Spark, and what sends plans to tasks. None of it reads rows.
PLANS: Final = Path(__file__).with_name("compilers_plans.json")
#: The programs that Spark makes of plans.
PROGRAMS: Final = Path(__file__).with_name("compilers_programs.json")
_BEAN: Final = "com.sun.management:type=DiagnosticCommand"
_TEXTS: Final = "[Ljava.lang.String;"


def leave_to_first(session: SparkSession, methods: Path) -> bool:
    """Keep methods from the second compiler from now on; whether Java can.

    :param methods: ``PLANS`` or ``PROGRAMS``.
    """
    return methods.is_file() and diagnose(session, "compilerDirectivesAdd", str(methods)) is not None


@contextmanager
def left_to_first(session: SparkSession, methods: Path) -> Iterator[None]:
    """The same during the block. What was met in it stays with the first compiler."""
    is_left = leave_to_first(session, methods)
    try:
        yield
    finally:
        if is_left:
            diagnose(session, "compilerDirectivesRemove")


def diagnose(session: SparkSession, command: str, *words: str) -> str | None:
    """What Java answers to one of its diagnostic commands; None if it does not have it."""
    from py4j.protocol import Py4JError

    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway

    def array(of: Any, *values: Any) -> Any:
        made = gateway.new_array(of, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    class_of, of_any, of_texts = jvm.java.lang.Class.forName, jvm.java.lang.Object, jvm.java.lang.String
    given = [array(of_texts, *words)] if words else []
    try:
        # The class of the server is not open to Py4J, but its interface is.
        name = jvm.javax.management.ObjectName(_BEAN)
        types = map(class_of, ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", _TEXTS))
        invoke = class_of("javax.management.MBeanServer").getMethod("invoke", array(jvm.java.lang.Class, *types))
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        signature = array(of_texts, *([_TEXTS] if words else []))
        return str(invoke.invoke(server, array(of_any, name, command, array(of_any, *given), signature)))
    except Py4JError:
        return None
