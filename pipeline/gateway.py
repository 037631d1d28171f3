"""Spares a session most of its questions to the JVM: PySpark looks the same names up again and
again, at a round trip each, and a plan has thousands of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTIONS: Final = ("functions", "org.apache.spark.sql.functions")
_CLASSES: Final = ("PythonUtils", "org.apache.spark.sql.expressions.Window")


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
