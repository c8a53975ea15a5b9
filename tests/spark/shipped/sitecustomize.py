"""Spark's Python processes import PySpark as it is installed.

Spark puts an archive of it before everything else in their path, and what comes from an archive is compiled anew by
each process: 0.7 seconds instead of 0.3 for every stream that begins.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]
