"""Promotion by prefix: a build goes to staging/, and moving it to release/ is the promotion. Whoever publishes watches
release/ and knows nothing of builds. A second build of a released version is refused; the dead letters say why."""

import bucketmq

with bucketmq.connect("artifacts") as bucket:

    @bucket.watch('WHERE key LIKE "staging/%.tar.gz"', start="beginning")
    def verify(change: bucketmq.Change) -> bucketmq.Bury | None:
        if not change.bytes().startswith(b"\x1f\x8b"):
            return bucketmq.Bury("this is not a gzip file")
        try:
            change.move(f"release/{change.name}")
        except bucketmq.Invalid as error:
            return bucketmq.Bury(str(error).split(";")[0])

    @bucket.watch('WHERE key REGEXP "^release/" AND size < 10000000', start="beginning")
    def publish(change: bucketmq.Change) -> None:
        print("published", change.name, "from", change.event.from_key)

    bucket.put("staging/app-1.0.tar.gz", b"\x1f\x8b the first build")
    bucket.put("staging/notes.txt", "not an artifact")
    bucket.put("staging/app-1.1.tar.gz", b"oops, an error page")
    bucket.run_watchers("verify", stop_when_empty=True)
    bucket.run_watchers("publish", stop_when_empty=True)

    bucket.put("staging/app-1.0.tar.gz", b"\x1f\x8b another build of the same version")
    bucket.run_watchers("verify", stop_when_empty=True)

    for letter in bucket.queue("events").dead_letters.peek():
        print("refused", letter.body["key"], "|", letter.reason)
    print(bucket.get("release/app-1.0.tar.gz").body[3:].decode())

# Output:
# published app-1.0.tar.gz from staging/app-1.0.tar.gz
# refused staging/app-1.1.tar.gz | this is not a gzip file
# refused staging/app-1.0.tar.gz | there is another object at release/app-1.0.tar.gz, which does not come from this one
# the first build
