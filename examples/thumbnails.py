"""An image step: whatever lands in photos/ gets a small version in thumbs/, also when it is replaced. Images here are
PGM, a format of a dozen bytes and raw pixels, so that the example needs no imaging library."""

import bucketmq


def shrunk(image: bytes, factor: int) -> bytes:
    """Every `factor`-th pixel of every `factor`-th row."""
    _, size, _, pixels = image.split(b"\n", 3)
    width, height = map(int, size.split())
    rows = [pixels[row * width : (row + 1) * width : factor] for row in range(0, height, factor)]
    return b"P5\n%d %d\n255\n%s" % (len(rows[0]), len(rows), b"".join(rows))


def picture(width: int, height: int, grey: int) -> bytes:
    return b"P5\n%d %d\n255\n%s" % (width, height, bytes([grey]) * (width * height))


with bucketmq.connect("album") as bucket:

    @bucket.watch('WHERE key LIKE "photos/%" AND `Content-Type` = "image/x-portable-graymap"', concurrency=4)
    def shrink(change: bucketmq.Change) -> None:
        if change.kind == "deleted":
            return
        small = shrunk(change.bytes(), 4)
        change.put(f"thumbs/{change.name}", small, content_type="image/x-portable-graymap")

    bucket.run_watchers(stop_when_empty=True)  # makes the watcher's rule; what comes from now on is for it

    for number in range(3):
        bucket.put(f"photos/{number}.pgm", picture(64, 40, number), content_type="image/x-portable-graymap")
    bucket.put("photos/readme.txt", "not a picture")
    bucket.put("photos/0.pgm", picture(32, 32, 255), content_type="image/x-portable-graymap")  # a better one
    bucket.run_watchers(stop_when_empty=True)

    for key in bucket.rules.matching("", "thumbs/").keys:
        thumb = bucket.get(key)
        print(key, thumb.body.split(b"\n")[1].decode(), "in hop", thumb.hops)

# Output:
# thumbs/0.pgm 8 8 in hop 1
# thumbs/1.pgm 16 10 in hop 1
# thumbs/2.pgm 16 10 in hop 1
