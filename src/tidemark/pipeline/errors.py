"""Every error of Spark itself that the pipeline raises on purpose.

SparkError
├── JavaMissing        java_missing        there is no Java to run Spark on
├── JavaTooOld         java_too_old        there is one, and Spark does not run on it
└── SparkUnavailable   spark_unavailable   Spark did not start, or its process is gone
"""

from __future__ import annotations

from tidemark.errors import TidemarkError


class SparkError(TidemarkError):
    """Spark cannot be used."""

    code = "spark_error"


class JavaMissing(SparkError):
    """There is no Java to run Spark on."""

    code = "java_missing"


class JavaTooOld(SparkError):
    """Every Java that was found is older than Spark needs."""

    code = "java_too_old"


class SparkUnavailable(SparkError):
    """Spark did not start, or its process is gone."""

    code = "spark_unavailable"
