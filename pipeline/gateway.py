"""Spares a session most of its questions to the JVM: PySpark looks the same names up again and
again, and fills lists item by item, at a round trip each, and a plan has thousands of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTIONS: Final = ("functions", "org.apache.spark.sql.functions")
_CLASSES: Final = ("PythonUtils", "org.apache.spark.sql.expressions.Window")
_MOST_AT_ONCE: Final = 10
"""Java makes lists of up to so many items by one call."""


def spare_questions(session: SparkSession) -> None:
    """Have this session remember names, and make short lists at once."""
    remember_names(session)
    context: Any = session.sparkContext
    client = context._gateway._gateway_client  # noqa: SLF001 there is no public way to it
    spare_call_sites(session)
    _keep_call_sites()
    if not any(isinstance(one, _ShortLists) for one in client.converters):
        client.converters = [_ShortLists(context._jvm.java.util.List), *client.converters]  # noqa: SLF001 as above


def spare_call_sites(session: SparkSession) -> None:
    """Have Spark not look up, for each table that this thread makes, who made it: it walks through
    the whole stack for that, and nobody reads it."""
    for form in ("callSite.short", "callSite.long"):
        session.sparkContext.setLocalProperty(form, "stormcast")


def _keep_call_sites() -> None:
    """Have PySpark not take back the call site of a thread after each table that it collects: it
    does so at the end of the outermost call only, so this is as if one went on for ever."""
    from pyspark.traceback_utils import SCCallSiteSync  # noqa: PLC0415 only where it is there

    SCCallSiteSync._spark_stack_depth += 1  # noqa: SLF001 there is no public way


def remember_names(session: SparkSession) -> None:
    """Have this session look up each class, each function and each column's name once.

    PySpark finds them as attributes of its view of the JVM. One that it does not ask for, as
    another version of it may, does no harm there.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 there is no public way to it
    functions = _Functions(jvm.functions)
    for name in _FUNCTIONS:
        setattr(jvm, name, functions)
    for name in _CLASSES:
        setattr(jvm, name, _Class(getattr(jvm, name)))


class _ShortLists:
    """Makes Java's lists of Python's short ones."""

    def __init__(self, java: Any) -> None:  # noqa: ANN401 Py4J has no types
        self._of = java.of

    def can_convert(self, value: object) -> bool:
        """Whether this is such a list. Java's have no null."""
        if type(value) is not list or len(value) > _MOST_AT_ONCE:
            return False
        return all(item is not None for item in value)

    def convert(self, value: list[object], _client: object) -> Any:  # noqa: ANN401 as above
        return self._of(*value)


class _Class:
    """A Java class whose members are looked up once."""

    def __init__(self, java: Any) -> None:  # noqa: ANN401 Py4J has no types
        self._java = java

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 as above
        member = getattr(self._java, name)
        setattr(self, name, member)
        return member


class _Functions(_Class):
    """Spark's functions: a column that is asked for by its name is the same one each time."""

    def __init__(self, java: Any) -> None:  # noqa: ANN401 as above
        super().__init__(java)
        self._columns: dict[str, Any] = {}

    def col(self, name: str) -> Any:  # noqa: ANN401 as above
        if name not in self._columns:
            self._columns[name] = self._java.col(name)
        return self._columns[name]
