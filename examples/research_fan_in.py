"""Fan-in: three researchers work on each question, each at its own pace; the editor is called once, when all three
answers are there, or at the deadline with what is missing."""

import time

import bucketmq

PARTS = ("sources", "numbers", "critique")

with bucketmq.connect("research") as bucket:

    @bucket.when_all(*(f"answers/{{question}}/{part}.md" for part in PARTS), deadline_seconds=1.0, start="beginning")
    def edit(found: bucketmq.Complete) -> None:
        question = found.values["question"]
        text = "".join(bucket.get(key).body.decode() for key in found.keys)
        missing = [key.rsplit("/", 1)[-1] for key in found.missing]
        print(f"{question}: {len(found.keys)} parts, {len(text)} characters, missing {missing}")
        bucket.put(f"reports/{question}.md", text)

    for part in PARTS:
        bucket.put(f"answers/tides/{part}.md", f"what {part} say\n")
    bucket.put("answers/comets/sources.md", "only this one came\n")
    bucket.run_watchers(stop_when_empty=True)

    bucket.put("answers/tides/sources.md", "a late correction\n")  # the set is complete already: no second call
    while bucket.look("reports/comets.md") is None:  # until its deadline
        bucket.run_watchers(stop_when_empty=True)
        time.sleep(0.1)
    print(list(bucket.rules.matching("", "reports/").keys))

# Output:
# tides: 3 parts, 52 characters, missing []
# comets: 1 parts, 19 characters, missing ['numbers.md', 'critique.md']
# ['reports/comets.md', 'reports/tides.md']
