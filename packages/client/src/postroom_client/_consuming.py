"""One message at a time, in a ``with`` statement."""

import os

from ._delivery import Reject, Retry
from ._keeping import Keeper
from ._settling import settle
from .errors import PostroomError


class Consuming(object):
    """The next message while the body of the ``with`` works on it: see ``Client.consume``."""

    def __init__(self, client, queue, requeue, consume):
        self._client = client
        self._queue = queue
        self._requeue = requeue
        self._consume = consume
        self._delivery = None
        self._keeper = None
        self._pid = None

    def __enter__(self):
        self._pid = os.getpid()
        self._delivery = self._consume()
        if self._delivery is not None:
            self._keeper = Keeper(self._client)
            self._keeper.hold(self._delivery)
        return self._delivery

    def __exit__(self, kind, error, trace):
        delivery, self._delivery = self._delivery, None
        if delivery is None or os.getpid() != self._pid:  # what a forked child leaves is its parent's
            return False
        try:
            if kind is None:
                settle(self._client, delivery, self._queue)
            else:
                self._fail(delivery, kind() if error is None else error)
        finally:
            self._keeper.close()
        return kind is not None and issubclass(kind, (Reject, Retry))

    def _fail(self, delivery, error):
        try:
            settle(self._client, delivery, self._queue, error, self._requeue)
        except PostroomError:
            pass  # the error of the body is what counts; the message is delivered again once its lease is over
