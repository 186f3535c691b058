"""``postroomd import websocket-mq``: queues and messages of WebSocket MQ's database become events of the journal."""

from .run import MqImport, check_websocket_mq, import_websocket_mq

__all__ = ["MqImport", "check_websocket_mq", "import_websocket_mq"]
