"""``scripts/bench gateway``: the gateway and the lane beside other servers of queues, on the same disk in the same run.

``contest`` sets the sizes and goes through the rounds; ``systems`` starts ours, ``peers`` the others; ``driver`` is the
client of all of them; ``wires`` says what a protocol is, and ``lmq``, ``websocket_mq``, ``smss``, ``simplemq``,
``amqp``, ``beanstalk``, ``nats`` and ``redis`` are the protocols; ``tables`` prints.
"""
