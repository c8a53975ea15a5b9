"""Pipelines that come with BucketMQ: whole jobs over a bucket, made of agents and of stages on Spark."""
