"""Documents below docs/ become passages that can be searched, and a graph of what they speak of.

`app` is the application as a value, `pipeline` what indexes, `library` what answers: search, why, graph, ask.
"""
