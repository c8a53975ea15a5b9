"""Which Python Spark starts for planners and workers.

Spark starts `python3` from PATH unless PYSPARK_PYTHON named another when the session was made. A program that is run as
`.venv/bin/python app.py` is usually not that one, and Spark then finds neither this package nor its data source.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("bucketmq.spark")

VARIABLE = "PYSPARK_PYTHON"

UNNAMED = "python3"
"""What Spark starts when nobody named a Python."""

CURE = f"set {VARIABLE} to a Python that has bucketmq before the session starts"


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this machine: local[...] in this process, local-cluster[...] beside it."""
    return re.match(r"local(-cluster)?(\[|$)", master) is not None


def use_this_python(spark: SparkSession) -> None:
    """Let a session start the Python that runs this program, unless one was named.

    On a cluster the same path may lead nowhere, so nothing is changed there, and a warning says what to set. Through
    Spark Connect the server decides.
    """
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect has no context
        return
    if VARIABLE in os.environ or context.pythonExec != UNNAMED:
        return
    if is_local(context.master or ""):
        context.pythonExec = sys.executable
    elif (found := shutil.which(UNNAMED)) != sys.executable:
        logger.warning(
            "Spark starts %s, while this program runs in %s; if that lacks bucketmq, %s",
            found or UNNAMED,
            sys.executable,
            CURE,
        )
