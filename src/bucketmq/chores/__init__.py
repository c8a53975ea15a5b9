"""The bucket's own chores on Spark: archive, sweep, audit and replay, each a function `run(spark, bucket_url, ...)`.

Each cuts its work on the driver, does it on the executors through the store port, and returns a summary. What is true
lies in the bucket as ever, so a chore that dies is simply run again. Importing this package imports no PySpark.
"""
