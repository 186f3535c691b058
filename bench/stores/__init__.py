"""``scripts/bench stores``: our stores beside other queues that are a library, on the same disk in the same run.

``contest`` sets the sizes and goes through the rounds, ``workers`` keeps one process a queue, ``worker`` is what runs
there, ``ours`` and ``peers`` are the queues, ``tables`` prints.
"""
